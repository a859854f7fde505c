#include "cli/long_work.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace lockstep::cli {
namespace {

struct Written {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), std::fclose};

  std::string text() const {
    std::rewind(file.get());
    std::string out;
    std::array<char, 4096> buffer;
    while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get()))
      out.append(buffer.data(), n);
    return out;
  }
};

TEST(LongWork, IsLinesWhereThereIsNoTerminal) {
  const Written written;
  LongWork work("search", written.file.get(), {}, 0);
  work.update(1, 3000);
  work.update(1500, 3000);
  work.update(3000, 3000);
  work.finish();
  const std::string text = written.text();
  EXPECT_EQ(text.find("search: 0 %, 1 of 3,000, about 0:"), 0u) << text;
  EXPECT_NE(text.find("\nsearch: 50 %, 1,500 of 3,000, about 0:"), std::string::npos) << text;
  EXPECT_EQ(text.find("3,000 of"), std::string::npos) << text;  // what is done needs no line
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(LongWork, ShortWorkIsSilent) {
  for (const bool interactive : {false, true}) {
    const Written written;
    observe::Terminal terminal;
    terminal.interactive = interactive;
    LongWork work("search", written.file.get(), terminal);
    work.update(1, 2);
    work.update(2, 2);
    work.finish();
    EXPECT_EQ(written.text(), "");
  }
}

}  // namespace
}  // namespace lockstep::cli
