// Messages survive the pipe bit for bit, however the bytes are cut; everything else is refused.
#include "observe/worker_message.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "base/error.hpp"
#include "base/json.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::observe {
namespace {

using testing::message_of;

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

std::string without_line_feed(std::string line) {
  EXPECT_FALSE(line.empty());
  EXPECT_EQ(line.back(), '\n');
  line.pop_back();
  EXPECT_EQ(line.find('\n'), line.npos);
  return line;
}

template <typename M>
M through(const M& message) {
  return std::get<M>(decode(without_line_feed(encode(message))));
}

rc::Gen<double> any_double() {
  return rc::gen::map(rc::gen::arbitrary<uint64_t>(),
                      [](uint64_t bits) { return std::bit_cast<double>(bits); });
}

TEST(WorkerMessage, StepsComeBackExactly) {
  EXPECT_TRUE(rc::check("all fields of a step", [] {
    StepRecord r;
    for (int64_t* field : {&r.step, &r.steps, &r.tokens, &r.memory_bytes})
      *field = *rc::gen::arbitrary<int64_t>();
    const auto doubles = {&r.loss,   &r.grad_norm, &r.lr,          &r.seconds,   &r.tokens_per_second,
                          &r.tflops, &r.mfu,       &r.eta_seconds, &r.mfu_causal};
    for (double* field : doubles) *field = *any_double();
    r.skipped = *rc::gen::arbitrary<bool>();
    r.trouble = *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127));
    const StepRecord back = through(r);
    RC_ASSERT(back.skipped == r.skipped && back.trouble == r.trouble && same(back.mfu_causal, r.mfu_causal));
    RC_ASSERT(back.step == r.step && back.steps == r.steps && back.tokens == r.tokens);
    RC_ASSERT(back.memory_bytes == r.memory_bytes);
    RC_ASSERT(same(back.loss, r.loss) && same(back.grad_norm, r.grad_norm) && same(back.lr, r.lr));
    RC_ASSERT(same(back.seconds, r.seconds) && same(back.tokens_per_second, r.tokens_per_second));
    RC_ASSERT(same(back.tflops, r.tflops) && same(back.mfu, r.mfu) && same(back.eta_seconds, r.eta_seconds));
  }));
}

TEST(WorkerMessage, WaitsAndTheMatrixPeakComeBackExactly) {
  EXPECT_TRUE(rc::check("eight doubles and a place", [](int rank, int64_t step) {
    WaitMessage m{rank, step, {}, *rc::gen::arbitrary<int64_t>(), *rc::gen::arbitrary<int64_t>()};
    ExposedSeconds& e = m.waits.exposed;
    ExposedSeconds& u = m.waits.under_way;
    const auto fields = {&e.tp, &e.cp, &e.pp, &e.dp, &u.tp, &u.cp, &u.pp, &u.dp};
    for (double* field : fields) *field = *any_double();
    const WaitMessage back = through(m);
    RC_ASSERT(back.rank == rank && back.step == step);
    RC_ASSERT(back.tensor_bytes == m.tensor_bytes && back.resident_bytes == m.resident_bytes);
    const ExposedSeconds& be = back.waits.exposed;
    const ExposedSeconds& bu = back.waits.under_way;
    const auto got = {be.tp, be.cp, be.pp, be.dp, bu.tp, bu.cp, bu.pp, bu.dp};
    RC_ASSERT(
        std::equal(got.begin(), got.end(), fields.begin(), [](double a, double* b) { return same(a, *b); }));
    const MatrixPeak peak = through(MatrixPeak{e.tp, rank});
    RC_ASSERT(same(peak.flops, e.tp) && peak.cores == rank);
  }));
}

TEST(WorkerMessage, SpecialNumbersComeBack) {
  using Limits = std::numeric_limits<double>;
  for (const double value :
       {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), -0.0, Limits::denorm_min(),
        Limits::max(), Limits::lowest(), Limits::min(), 0.1, 1.0 / 3, 1e23, 5e-324}) {
    EXPECT_TRUE(same(through(EvaluationMessage{.step = 1, .loss = value, .tokens = 2}).loss, value)) << value;
  }
}

TEST(WorkerMessage, TheOthersComeBack) {
  EXPECT_TRUE(rc::check(
      "ready, evaluation, final and error", [](int rank, int64_t step, uint64_t high, uint64_t low) {
        RC_ASSERT(through(ReadyMessage{rank}).rank == rank);
        const double loss = *any_double();
        const EvaluationMessage evaluation = through(EvaluationMessage{step, loss, step});
        RC_ASSERT(evaluation.step == step && evaluation.tokens == step && same(evaluation.loss, loss));
        const FinalMessage last = through(FinalMessage{{high, low}, loss});
        RC_ASSERT(last.weights_hash[0] == high && last.weights_hash[1] == low && same(last.eval_loss, loss));
        const auto text = *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127));
        const ErrorMessage error = through(ErrorMessage{rank, text});
        RC_ASSERT(error.rank == rank && error.text == text);
      }));
}

TEST(WorkerMessage, IsPlainJson) {
  const FinalMessage message{{0xABCu, 0xFFFFFFFFFFFFFFFFu}, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(encode(message),
            "{\"kind\":\"final\",\"weights_hash\":[\"0000000000000abc\",\"ffffffffffffffff\"],\"eval_loss\":"
            "\"nan\"}\n");
  EXPECT_EQ(hash_text(message.weights_hash), "0000000000000abcffffffffffffffff");
}

TEST(WorkerMessage, LongAndBrokenTextsStillArrive) {
  for (const std::string& piece :
       {std::string("x"), std::string("\x1f"), std::string("\xFF"), std::string("日")}) {
    std::string text;
    while (text.size() < 3 * max_message_bytes) text += piece;
    const std::string line = encode(ErrorMessage{2, text});
    EXPECT_LE(line.size(), max_message_bytes);
    const auto back = std::get<ErrorMessage>(decode(without_line_feed(line)));
    EXPECT_TRUE(back.text.ends_with(" [cut]"));
    EXPECT_GT(back.text.size(), 10000u);
    StepRecord step;
    step.trouble = text;
    const std::string step_text = encode(step);
    EXPECT_LE(step_text.size(), max_message_bytes);
    EXPECT_TRUE(std::get<StepRecord>(decode(without_line_feed(step_text))).trouble.ends_with(" [cut]"));
  }
  EXPECT_EQ(through(ErrorMessage{0, "a\xFFz"}).text, "a\uFFFDz");
}

TEST(WorkerMessage, OtherLinesAreRefused) {
  for (const char* line :
       {"",
        "x",
        "[]",
        "null",
        "{}",
        R"({"kind":1})",
        R"({"kind":"other"})",
        R"({"kind":"ready"})",
        R"({"kind":"ready","rank":"0"})",
        R"({"kind":"ready","rank":0.5})",
        R"({"kind":"ready","rank":3000000000})",
        R"({"kind":"ready","rank":-3000000000})",
        R"({"kind":"ready","rank":0,"more":1})",
        R"({"kind":"ready","rank":0)",
        R"({"kind":"evaluation","step":18446744073709551615,"loss":1,"tokens":1})",
        R"({"kind":"evaluation","step":1,"loss":"nul","tokens":1})",
        R"({"kind":"evaluation","step":1,"loss":null,"tokens":1})",
        R"({"kind":"waits","rank":0,"step":1,"exposed":[1,2,3,4],"under_way":[1,2,3]})",
        R"({"kind":"waits","rank":0,"step":1,"exposed":[1,2,3,4],"under_way":[1,2,3,true]})",
        R"({"kind":"matrix_peak","flops":1,"cores":1.5})",
        R"({"kind":"final","weights_hash":["0"],"eval_loss":1})",
        R"({"kind":"final","weights_hash":["0000000000000abc","fffffffffffffff"],"eval_loss":1})",
        R"({"kind":"final","weights_hash":["0000000000000abc","fffffffffffffffg"],"eval_loss":1})",
        R"({"kind":"final","weights_hash":["0000000000000abc",7],"eval_loss":1})",
        R"({"kind":"error","rank":1,"text":7})"}) {
    const std::string message = message_of<RunError>([&] { decode(line); });
    EXPECT_NE(message, "") << line;
    EXPECT_NE(message.find(line), message.npos) << message;
  }
}

TEST(LineReader, CutsAnyPiecesIntoTheSameLines) {
  EXPECT_TRUE(rc::check("lines do not depend on the pieces", [] {
    const auto lines = *rc::gen::arbitrary<std::vector<std::string>>();
    std::vector<std::string> expected;
    std::string bytes;
    for (std::string line : lines) {
      std::erase(line, '\n');
      expected.push_back(line);
      bytes += line + "\n";
    }
    const auto rest = *rc::gen::container<std::string>(rc::gen::inRange<char>('a', 'z'));
    bytes += rest;
    LineReader reader(4096);
    std::vector<std::string> got;
    for (size_t at = 0; at < bytes.size();) {
      const size_t piece = *rc::gen::inRange<size_t>(1, 9);
      reader.feed(std::string_view(bytes).substr(at, piece));
      at += piece;
      if (*rc::gen::arbitrary<bool>()) continue;  // lines may pile up
      while (const auto line = reader.next()) got.push_back(*line);
    }
    while (const auto line = reader.next()) got.push_back(*line);
    RC_ASSERT(got == expected);
    RC_ASSERT(reader.unfinished() == rest);
  }));
}

TEST(LineReader, RefusesOversizeLines) {
  LineReader fits(10);
  fits.feed("123456789\n123456789");
  fits.feed("\n");
  EXPECT_EQ(fits.next(), "123456789");
  EXPECT_EQ(fits.next(), "123456789");
  EXPECT_EQ(fits.next(), std::nullopt);
  EXPECT_THROW(fits.feed("1234567890\n"), RunError);
  LineReader slowly(10);
  slowly.feed("ok\n12345");
  EXPECT_THROW(slowly.feed("67890"), RunError);  // before its line feed comes
}

TEST(WorkerPipe, MessagesLargerThanThePipeArrive) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);  // the sender waits for room all the same
  const std::string text(50000, 'q');
  std::thread sender([&] {
    for (int i = 0; i < 20; ++i) send_message(ends[1], ErrorMessage{i, text});
    close(ends[1]);
  });
  LineReader reader;
  int received = 0;
  while (reader.read_from(ends[0])) {
    while (const auto line = reader.next()) {
      const auto error = std::get<ErrorMessage>(decode(*line));
      EXPECT_EQ(error.rank, received++);
      EXPECT_EQ(error.text, text);
    }
  }
  sender.join();
  EXPECT_EQ(received, 20);
  EXPECT_EQ(reader.unfinished(), "");
  close(ends[0]);
}

TEST(WorkerPipe, ClosedAndEmptyPipes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  LineReader reader;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  EXPECT_TRUE(reader.read_from(ends[0]));  // nothing now, but not at its end
  ASSERT_EQ(write(ends[1], "half", 4), 4);
  EXPECT_TRUE(reader.read_from(ends[0]));
  close(ends[1]);
  EXPECT_FALSE(reader.read_from(ends[0]));
  EXPECT_EQ(reader.unfinished(), "half");
  close(ends[0]);

  signal(SIGPIPE, SIG_IGN);
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_THROW(send_message(ends[1], ReadyMessage{}), RunError);
  close(ends[1]);
}

}  // namespace
}  // namespace lockstep::observe
