// The progress bar, as a small terminal shows it.
#include "observe/progress.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "base/error.hpp"

namespace lockstep::observe {
namespace {

// What Progress wrote so far, as bytes.
class Output {
 public:
  Output() : file_(open_memstream(&data_, &size_)) {}
  ~Output() {
    fclose(file_);
    free(data_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    fflush(file_);
    return std::string(data_, size_);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

// Rows of a terminal of endless height after some output. Wraps as xterm does: a character after the last
// column goes to the next row, not before.
std::vector<std::string> screen(const std::string& output, size_t columns) {
  std::vector<std::string> rows(1);
  size_t row = 0, column = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const char c = output[i];
    if (c == '\n') {
      ++row, column = 0;  // as a terminal in its usual mode returns at a line feed
    } else if (c == '\r') {
      column = 0;
    } else if (c == '\x1b') {
      size_t end = i + 2;
      while (!isalpha(static_cast<unsigned char>(output.at(end)))) ++end;
      const std::string count = output.substr(i + 2, end - i - 2);
      if (output[end] == 'A') row -= std::stoul(count);
      if (output[end] == 'J') {
        rows.resize(row + 1);
        rows[row].resize(column);
      }
      i = end;
    } else {
      if (column == columns) ++row, column = 0;
      if (rows.size() <= row) rows.resize(row + 1);
      rows[row].resize(std::max(rows[row].size(), column + 1), ' ');
      rows[row][column++] = c;
    }
    if (rows.size() <= row) rows.resize(row + 1);
  }
  return rows;
}

Terminal plain_terminal(int columns) {
  return {.interactive = true, .colour = false, .unicode = false, .columns = columns};
}

TEST(ProgressText, ShowsShareAndEta) {
  EXPECT_EQ(progress_text("tiny", 204, 600, 72, plain_terminal(80)),
            "tiny  [" + std::string(13, '#') + std::string(27, '.') + "]   34%  204/600  eta 0:01:12");
  EXPECT_EQ(progress_text("", 1, 4, -1, plain_terminal(30)), "[####............]   25%  1/4");
  EXPECT_EQ(progress_text("tiny", 204, 600, 72, plain_terminal(20)), " 34%  204/600  eta ");
}

TEST(ProgressText, FitsAnyTerminal) {
  EXPECT_TRUE(rc::check("fewer characters than columns, no control characters", [] {
    const Terminal terminal = plain_terminal(*rc::gen::inRange(1, 300));
    const auto title = *rc::gen::arbitrary<std::string>();
    const int64_t total = *rc::gen::inRange<int64_t>(1, 1'000'000'000);
    const int64_t done = *rc::gen::inRange<int64_t>(0, total + 1);
    const double eta = *rc::gen::element(-1.0, 0.0, 3.5, 1e6, std::nan(""));
    const std::string text = progress_text(title, done, total, eta, terminal);
    long cells = 0;
    for (const char c : text) {
      cells += (c & 0xC0) != 0x80;
      RC_ASSERT(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
    }
    RC_ASSERT(cells < terminal.columns);
  }));
}

TEST(ProgressText, ColoursOnlyWhenAsked) {
  Terminal terminal = plain_terminal(80);
  EXPECT_EQ(progress_text("t", 1, 2, 1, terminal).find('\x1b'), std::string::npos);
  terminal.colour = true;
  EXPECT_NE(progress_text("t", 1, 2, 1, terminal).find("\x1b[38;5;75m"), std::string::npos);
  terminal.unicode = true;
  EXPECT_NE(progress_text("t", 1, 2, 1, terminal).find("━"), std::string::npos);
}

TEST(Progress, PrintsOnlyLinesElsewhere) {
  Output output;
  {
    Progress progress(output.file(), Terminal{}, "tiny", 3);
    for (int i = 1; i <= 3; ++i) {
      progress.update(i, 3 - i);
      progress.line("step " + std::to_string(i));
    }
  }
  EXPECT_EQ(output.text(), "step 1\nstep 2\nstep 3\n");
}

TEST(Progress, BarStandsAboveTheNewestLineAndGoes) {
  for (const size_t columns : {40u, 60u, 61u, 200u}) {
    const auto line = [](int i) { return "step " + std::to_string(i) + std::string(115, 'x'); };
    const auto wrapped = [&](const std::vector<std::string>& lines) {
      std::string joined;
      for (const std::string& l : lines) joined += l + "\n";
      return screen(joined, columns);
    };
    Output output;
    Progress progress(output.file(), plain_terminal(static_cast<int>(columns)), "tiny", 3);
    progress.update(0, -1);
    EXPECT_EQ(screen(output.text(), columns),
              std::vector{progress_text("tiny", 0, 3, -1, plain_terminal(int(columns)))});
    progress.line(line(1));
    progress.update(1, 2);
    progress.line(line(2));
    progress.update(2, 1);
    progress.update(2, 0.5);
    std::vector<std::string> expected =
        wrapped({line(1), progress_text("tiny", 2, 3, 0.5, plain_terminal(int(columns))), line(2)});
    expected.pop_back();  // the cursor stays at the end of the newest line
    EXPECT_EQ(screen(output.text(), columns), expected) << columns;
    progress.finish();
    progress.line("done");
    progress.update(3, 0);
    EXPECT_EQ(screen(output.text(), columns), wrapped({line(1), line(2), "done"})) << columns;
  }
}

TEST(Progress, LeavesNothingWhenNoLineCame) {
  Output output;
  {
    Progress progress(output.file(), plain_terminal(80), "tiny", 3);
    progress.update(1, 5);
  }
  EXPECT_EQ(screen(output.text(), 80), std::vector<std::string>{""});
  EXPECT_THROW(Progress(output.file(), plain_terminal(80), "tiny", 0), RunError);
}

// A pseudo-terminal, 97 columns wide.
class PseudoTerminal {
 public:
  PseudoTerminal() : main_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (main_ < 0) return;
    grantpt(main_);
    unlockpt(main_);
    user_ = open(ptsname(main_), O_RDWR | O_NOCTTY);
    const winsize size{24, 97, 0, 0};
    ioctl(user_, TIOCSWINSZ, &size);
  }
  ~PseudoTerminal() {
    close(user_);
    close(main_);
  }
  int user() const { return user_; }

 private:
  int main_;
  int user_ = -1;
};

TEST(Terminal, IsDetected) {
  const PseudoTerminal pseudo;
  if (pseudo.user() < 0) GTEST_SKIP() << "this system gives no pseudo-terminal: is /dev/pts mounted?";
  setenv("TERM", "xterm-256color", 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  unsetenv("NO_COLOR");
  Terminal terminal = detect_terminal(pseudo.user());
  EXPECT_TRUE(terminal.interactive);
  EXPECT_TRUE(terminal.colour);
  EXPECT_TRUE(terminal.unicode);
  EXPECT_EQ(terminal.columns, 97);

  setenv("NO_COLOR", "1", 1);
  setenv("LC_ALL", "C", 1);
  terminal = detect_terminal(pseudo.user());
  EXPECT_TRUE(terminal.interactive);
  EXPECT_FALSE(terminal.colour);
  EXPECT_FALSE(terminal.unicode);

  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(detect_terminal(pseudo.user()).interactive);

  setenv("TERM", "xterm", 1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(detect_terminal(ends[1]).interactive);
  EXPECT_FALSE(detect_terminal(ends[1]).colour);
  close(ends[0]);
  close(ends[1]);
}

TEST(Progress, EndsQuietlyWhenTheTerminalIsGone) {
  std::FILE* gone = fopen("/dev/full", "w");
  ASSERT_NE(gone, nullptr);
  setvbuf(gone, nullptr, _IONBF, 0);
  Terminal terminal;
  terminal.interactive = true;
  {
    Progress progress(gone, terminal, "train", 10);
    EXPECT_ANY_THROW(progress.line("step 1"));
  }  // a destructor that throws would end the program here
  fclose(gone);
}

}  // namespace
}  // namespace lockstep::observe
