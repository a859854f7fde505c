// The run store, read back through its own functions and through plain SQL by another connection.
#include "observe/run_store.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::observe {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using testing::write_text;

// Another program's view: rows as text, columns joined by '|'.
class OtherProgram {
 public:
  explicit OtherProgram(const std::filesystem::path& path) {
    EXPECT_EQ(sqlite3_open_v2(path.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr),
              SQLITE_OK);
  }
  ~OtherProgram() { sqlite3_close(database_); }
  std::vector<std::string> run(const char* sql) {
    std::vector<std::string> rows;
    const auto add = [](void* out, int columns, char** values, char**) {
      std::string row;
      for (int i = 0; i < columns; ++i) row += std::string(i ? "|" : "") + (values[i] ? values[i] : "NULL");
      static_cast<std::vector<std::string>*>(out)->push_back(row);
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(database_, sql, add, &rows, nullptr), SQLITE_OK) << sqlite3_errmsg(database_);
    return rows;
  }

 private:
  sqlite3* database_ = nullptr;
};

StepRecord step(int64_t number, double loss) {
  return {.step = number,
          .loss = loss,
          .grad_norm = 0.5,
          .lr = 1e-3,
          .tokens = 2048,
          .seconds = 0.25,
          .memory_bytes = 1 << 20,
          .tokens_per_second = 8192,
          .tflops = 0.125,
          .mfu = 0.5};
}

void expect_same(double a, double b) {
  EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << a << " " << b;
}

TEST(RunStore, OthersCanReadItWhileItIsOpen) {
  const TemporaryFolder folder;
  RunStore store = RunStore::create(folder / "run.db");
  store.append_step(step(1, 5.5));
  store.append_step(step(2, std::numeric_limits<double>::quiet_NaN()));
  store.append_event({.time = 12.5, .kind = "error", .rank = 3, .text = "it's \"gone\"\n日本"});
  store.set_meta("name", "tiny");
  store.set_meta("name", "small");
  OtherProgram other(folder / "run.db");
  EXPECT_EQ(other.run("PRAGMA journal_mode"), std::vector<std::string>{"wal"});
  EXPECT_EQ(
      other.run(
          "SELECT step, loss, grad_norm, lr, tokens, seconds, tokens_per_second, tflops, mfu, memory_bytes "
          "FROM steps ORDER BY step"),
      (std::vector<std::string>{"1|5.5|0.5|0.001|2048|0.25|8192.0|0.125|0.5|1048576",
                                "2|NULL|0.5|0.001|2048|0.25|8192.0|0.125|0.5|1048576"}));
  EXPECT_EQ(other.run("SELECT mfu_causal, skipped, exposed_tp, under_way_dp FROM steps WHERE step = 1"),
            std::vector<std::string>{"0.0|0|NULL|NULL"});
  EXPECT_EQ(other.run("SELECT time, kind, rank, text FROM events"),
            std::vector<std::string>{"12.5|error|3|it's \"gone\"\n日本"});
  EXPECT_EQ(other.run("SELECT key, value FROM meta"), std::vector<std::string>{"name|small"});
}

TEST(RunStore, ReadsBackExactly) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "run.db";
  RunStore writer = RunStore::create(path);
  int64_t written = 0;
  EXPECT_TRUE(rc::check("every double and integer comes back, NaN too", [&] {
    const auto doubles = *rc::gen::container<std::vector<double>>(
        7, rc::gen::map(rc::gen::arbitrary<uint64_t>(),
                        [](uint64_t bits) { return std::bit_cast<double>(bits); }));
    StepRecord record = {.step = ++written,
                         .loss = doubles[0],
                         .grad_norm = doubles[1],
                         .lr = doubles[2],
                         .tokens = *rc::gen::arbitrary<int64_t>(),
                         .seconds = doubles[3],
                         .memory_bytes = *rc::gen::arbitrary<int64_t>(),
                         .tokens_per_second = doubles[4],
                         .tflops = doubles[5],
                         .mfu = doubles[6]};
    const auto text = *rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
    writer.append_step(record);
    writer.append_event({.time = 1, .kind = text, .rank = -1, .text = text});
    writer.set_meta(text, text + "!");
    const RunStore store = RunStore::open(path);
    const StepRecord back = store.steps().back();
    RC_ASSERT(back.step == record.step);
    RC_ASSERT(back.tokens == record.tokens);
    RC_ASSERT(back.memory_bytes == record.memory_bytes);
    expect_same(back.loss, record.loss);
    expect_same(back.grad_norm, record.grad_norm);
    expect_same(back.lr, record.lr);
    expect_same(back.seconds, record.seconds);
    expect_same(back.tokens_per_second, record.tokens_per_second);
    expect_same(back.tflops, record.tflops);
    expect_same(back.mfu, record.mfu);
    RC_ASSERT(store.events().back().text == text);
    RC_ASSERT(store.events().back().kind == text);
    RC_ASSERT(store.meta(text) == std::optional(text + "!"));
    RC_ASSERT(!store.meta(text + "\x7F"));
  }));
}

TEST(RunStore, KeepsOnePrediction) {
  const TemporaryFolder folder;
  RunStore store = RunStore::create(folder / "run.db");
  EXPECT_FALSE(store.prediction());
  Prediction prediction{"local", 0.125, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  store.set_prediction(prediction);
  EXPECT_EQ(RunStore::open(folder / "run.db").prediction(), prediction);
  prediction.cluster = "/tmp/this machine.toml";
  prediction.seconds = 1.0 / 3;
  store.set_prediction(prediction);
  EXPECT_EQ(RunStore::open(folder / "run.db").prediction(), prediction);
  OtherProgram other(folder / "run.db");
  EXPECT_EQ(other.run("SELECT cluster, data, compute, barrier FROM prediction"),
            std::vector<std::string>{"/tmp/this machine.toml|1.0|2.0|9.0"});
}

TEST(RunStore, WaitsOfEveryRankAndTheirMean) {
  const TemporaryFolder folder;
  RunStore store = RunStore::create(folder / "run.db");
  StepRecord record = step(7, 4);
  record.skipped = true;
  record.mfu_causal = 0.25;
  record.waits = StepWaits{{.tp = 1, .cp = 2, .pp = 3, .dp = 4}, {.tp = 5, .cp = 6, .pp = 7, .dp = 8}};
  const std::vector<WaitMessage> ranks = {{0, 7, *record.waits, 4096, 5000},
                                          {5, 7, {{.dp = 9}, {.pp = 10}}, 8192, 9000}};
  store.append_step(record, ranks);
  store.append_step(step(8, 4), {{3, 8, *record.waits}});  // the others' never came
  OtherProgram other(folder / "run.db");
  EXPECT_EQ(other.run("SELECT skipped, mfu_causal, exposed_tp, exposed_cp, exposed_pp, exposed_dp, "
                      "under_way_tp, under_way_cp, under_way_pp, under_way_dp FROM steps"),
            (std::vector<std::string>{"1|0.25|1.0|2.0|3.0|4.0|5.0|6.0|7.0|8.0",
                                      "0|0.0|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL"}));
  EXPECT_EQ(other.run("SELECT * FROM waits"),
            (std::vector<std::string>{"7|0|1.0|2.0|3.0|4.0|5.0|6.0|7.0|8.0|4096|5000",
                                      "7|5|0.0|0.0|0.0|9.0|0.0|0.0|10.0|0.0|8192|9000",
                                      "8|3|1.0|2.0|3.0|4.0|5.0|6.0|7.0|8.0|0|0"}));
  const std::vector<StepRecord> steps = store.steps();
  EXPECT_TRUE(steps[0].skipped);
  EXPECT_EQ(steps[0].mfu_causal, 0.25);
  EXPECT_EQ(steps[0].waits, record.waits);
  EXPECT_EQ(steps[1].waits, std::nullopt);
  const std::vector<WaitMessage> back = store.waits(7);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[1].rank, 5);
  EXPECT_EQ(back[1].waits, ranks[1].waits);
  EXPECT_EQ(back[1].tensor_bytes, 8192);
  EXPECT_EQ(back[1].resident_bytes, 9000);
  EXPECT_TRUE(store.waits(6).empty());

  store.append_step(step(7, 3), {ranks[0]});  // again, with fewer ranks
  EXPECT_EQ(store.waits(7).size(), 1u);
}

TEST(RunStore, EvaluationsHaveTheirTable) {
  const TemporaryFolder folder;
  RunStore store = RunStore::create(folder / "run.db");
  for (const int64_t number : {200, 100}) store.append_evaluation({number, 1.5, 4096});
  store.append_evaluation({100, std::numeric_limits<double>::quiet_NaN(), 4096});  // replaces
  EXPECT_EQ(OtherProgram(folder / "run.db").run("SELECT step, loss, tokens FROM evaluations"),
            (std::vector<std::string>{"100|NULL|4096", "200|1.5|4096"}));
  const std::vector<EvaluationMessage> evaluations = store.evaluations();
  ASSERT_EQ(evaluations.size(), 2u);
  EXPECT_EQ(evaluations[0].step, 100);
  EXPECT_TRUE(std::isnan(evaluations[0].loss));
  EXPECT_EQ(evaluations[1].tokens, 4096);
}

TEST(RunStore, AStepWrittenAgainReplaces) {
  const TemporaryFolder folder;
  RunStore store = RunStore::create(folder / "run.db");
  for (const int64_t number : {3, 1, 2}) store.append_step(step(number, 4));
  store.append_step(step(2, 3));
  const std::vector<StepRecord> steps = store.steps();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_EQ(steps[1].loss, 3);
  EXPECT_EQ(steps[2].step, 3);
}

TEST(RunStore, AKilledWriterLeavesWholeRows) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    RunStore store = RunStore::create(folder / "run.db");
    for (int64_t i = 1; i <= 20; ++i) store.append_step(step(i, 1));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(RunStore::open(folder / "run.db").steps().size(), 20u);
  EXPECT_EQ(OtherProgram(folder / "run.db").run("PRAGMA integrity_check"), std::vector<std::string>{"ok"});
}

TEST(RunStore, ALockedStoreSaysSo) {
  const TemporaryFolder folder;
  RunStore store = RunStore::create(folder / "run.db");
  OtherProgram other(folder / "run.db");
  other.run("BEGIN IMMEDIATE");
  const std::string message = message_of<RunError>([&] { store.append_step(step(1, 1)); });
  EXPECT_NE(message.find("run.db"), message.npos) << message;
  EXPECT_NE(message.find("locked"), message.npos) << message;
  EXPECT_NE(message.find("close that program"), message.npos) << message;
  other.run("ROLLBACK");
  store.append_step(step(1, 1));  // goes on once the lock is gone
  EXPECT_EQ(store.steps().size(), 1u);
}

// A file size limit stands in for a full disk: writes past it fail as on one.
TEST(RunStore, ADiskThatTakesNoMoreSaysSo) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    RunStore store = RunStore::create(folder / "run.db");
    const rlimit limit{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = message_of<RunError>([&] {
      for (int i = 0; i < 1000; ++i)
        store.append_event({.time = 0, .kind = "fill", .text = std::string(1000, 'x')});
    });
    _exit(message.find("disk") != message.npos && message.find("--run-dir") != message.npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(RunStore, MisuseIsRefused) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<RunError>([&] { RunStore::open(folder / "absent.db"); }).find("absent.db"),
            std::string::npos);
  EXPECT_THROW(RunStore::create(folder / "no/folder/run.db"), RunError);
  { RunStore::create(folder / "run.db"); }
  EXPECT_NE(message_of<RunError>([&] { RunStore::create(folder / "run.db"); }).find("--run-dir"),
            std::string::npos);

  write_text(folder / "text.db", std::string(5000, 'x'));
  EXPECT_NE(message_of<RunError>([&] { RunStore::open(folder / "text.db"); }).find("not a"),
            std::string::npos);
  { OtherProgram(folder / "other.db").run("CREATE TABLE t(x)"); }
  EXPECT_NE(message_of<RunError>([&] { RunStore::open(folder / "other.db"); }).find("not a run store"),
            std::string::npos);
  { OtherProgram(folder / "run.db").run("PRAGMA user_version = 1"); }
  EXPECT_NE(message_of<RunError>([&] {
              RunStore::open(folder / "run.db");
            }).find("its schema is version 1, this build reads 4"),
            std::string::npos);
  { OtherProgram(folder / "run.db").run("PRAGMA user_version = 99"); }
  EXPECT_NE(message_of<RunError>([&] { RunStore::open(folder / "run.db"); }).find("version 99"),
            std::string::npos);
}

std::set<std::string> files_in(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(RunStore, ReadingWritesNothing) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "a?b#c%41 .db";  // a URI would take them for its own
  { RunStore::create(path).append_step(step(1, 4)); }
  const std::string before = testing::read_text(path);
  const std::set<std::string> files = files_in(folder);
  RunStore store = RunStore::open(path);
  EXPECT_EQ(store.steps().size(), 1u);
  EXPECT_EQ(files_in(folder), files);
  EXPECT_EQ(testing::read_text(path), before);
  EXPECT_NE(message_of<RunError>([&] { store.append_step(step(2, 3)); }).find("cannot"), std::string::npos);
  EXPECT_EQ(testing::read_text(path), before);
}

// What is written after a reader opened it is read too.
TEST(RunStore, ReadsARunThatGoesOn) {
  const TemporaryFolder folder;
  RunStore writer = RunStore::create(folder / "run.db");
  writer.append_step(step(1, 4));
  const RunStore reader = RunStore::open(folder / "run.db");
  EXPECT_EQ(reader.steps().size(), 1u);
  writer.append_step(step(2, 4));
  EXPECT_EQ(reader.steps().size(), 2u);
}

TEST(RunStore, AMissingTableIsNoPlaceToChoose) {
  const TemporaryFolder folder;
  { RunStore::create(folder / "run.db"); }
  { OtherProgram(folder / "run.db").run("DROP TABLE steps"); }
  const std::string message = message_of<RunError>([&] { RunStore::open(folder / "run.db"); });
  EXPECT_NE(message.find("no such table: steps"), std::string::npos) << message;
  EXPECT_NE(message.find("damaged"), std::string::npos) << message;
  EXPECT_EQ(message.find("--run-dir"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep::observe
