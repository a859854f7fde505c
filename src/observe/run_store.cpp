#include "observe/run_store.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "observe/database.hpp"

namespace lockstep::observe {
namespace {

constexpr int schema_version = 4;           // kept in PRAGMA user_version
constexpr int application_id = 0x4C4B5354;  // "LKST", kept in PRAGMA application_id

constexpr const char* schema = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE steps(step INTEGER PRIMARY KEY, loss REAL, grad_norm REAL, lr REAL, tokens INTEGER NOT NULL, seconds REAL,
                   tokens_per_second REAL, tflops REAL, mfu REAL, memory_bytes INTEGER NOT NULL, mfu_causal REAL,
                   skipped INTEGER NOT NULL, exposed_tp REAL, exposed_cp REAL, exposed_pp REAL, exposed_dp REAL,
                   under_way_tp REAL, under_way_cp REAL, under_way_pp REAL, under_way_dp REAL);
CREATE TABLE waits(step INTEGER, rank INTEGER, exposed_tp REAL, exposed_cp REAL, exposed_pp REAL, exposed_dp REAL,
                   under_way_tp REAL, under_way_cp REAL, under_way_pp REAL, under_way_dp REAL,
                   tensor_bytes INTEGER NOT NULL, resident_bytes INTEGER NOT NULL, PRIMARY KEY(step, rank)) WITHOUT ROWID;
CREATE TABLE evaluations(step INTEGER PRIMARY KEY, loss REAL, tokens INTEGER NOT NULL);
CREATE TABLE events(id INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, rank INTEGER NOT NULL,
                    text TEXT NOT NULL);
CREATE TABLE prediction(one INTEGER PRIMARY KEY CHECK(one = 1), cluster TEXT NOT NULL, seconds REAL, data REAL,
                        compute REAL, tp REAL, cp REAL, pp REAL, dp REAL, bubble REAL, optimizer REAL, barrier REAL);
)";
// Seconds; in `steps` the mean over ranks, NULL where some rank's never came.
constexpr const char* wait_columns =
    "exposed_tp, exposed_cp, exposed_pp, exposed_dp, under_way_tp, under_way_cp, under_way_pp, under_way_dp";
constexpr const char* byte_columns = "tensor_bytes, resident_bytes";  // of a rank
constexpr const char* step_columns =
    "step, loss, grad_norm, lr, tokens, seconds, tokens_per_second, tflops, mfu, memory_bytes, mfu_causal, "
    "skipped";

std::string prediction_columns() { return fmt::format("{}", fmt::join(Prediction::part_names, ", ")); }

// One use of a prepared statement: bind in order, step through rows, reset at the end.
class Query {
 public:
  Query(sqlite3* database, const std::string& path, sqlite3_stmt* statement)
      : database_(database), path_(path), statement_(statement) {}
  ~Query() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  Query& bind(int64_t value) { return check(sqlite3_bind_int64(statement_, ++bound_, value)); }
  Query& bind(double value) { return check(sqlite3_bind_double(statement_, ++bound_, value)); }
  Query& bind(std::string_view value) {
    const char* text = value.data() ? value.data() : "";  // a null pointer would bind NULL
    return check(
        sqlite3_bind_text64(statement_, ++bound_, text, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  Query& bind(const ExposedSeconds& s) { return bind(s.tp).bind(s.cp).bind(s.pp).bind(s.dp); }
  bool row(std::string_view what) {  // false: done
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) fail(database_, path_, what);
    column_ = 0;
    return code == SQLITE_ROW;
  }
  int64_t integer() { return sqlite3_column_int64(statement_, column_++); }
  double real() {
    const int at = column_++;
    if (sqlite3_column_type(statement_, at) == SQLITE_NULL) return std::numeric_limits<double>::quiet_NaN();
    return sqlite3_column_double(statement_, at);
  }
  ExposedSeconds exposed() {
    ExposedSeconds s;
    for (double* field : {&s.tp, &s.cp, &s.pp, &s.dp}) *field = real();
    return s;
  }
  std::string text() {
    const int at = column_++;
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, at));
    return data ? std::string(data, static_cast<size_t>(sqlite3_column_bytes(statement_, at)))
                : std::string();
  }

 private:
  Query& check(int code) {
    if (code != SQLITE_OK) fail(database_, path_, "bind a value");
    return *this;
  }
  sqlite3* database_;
  const std::string& path_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
  int column_ = 0;
};

int64_t pragma(sqlite3* database, const std::string& path, const std::string& name) {
  const Statement statement = prepare(database, path, "PRAGMA " + name);
  Query query(database, path, statement.get());
  return query.row("read the run store") ? query.integer() : 0;
}

// What is not committed is undone.
class Transaction {
 public:
  Transaction(sqlite3* database, const std::string& path) : database_(database), path_(path) {
    execute(database_, path_, "BEGIN IMMEDIATE", "write to the run store");
  }
  ~Transaction() {
    if (!committed_) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() {
    execute(database_, path_, "COMMIT", "write to the run store");
    committed_ = true;
  }

 private:
  sqlite3* database_;
  const std::string& path_;
  bool committed_ = false;
};

void set_modes(sqlite3* database, const std::string& path) {
  // In WAL mode, synchronous NORMAL loses at most the last rows at a power cut, and nothing when a process
  // dies.
  execute(database, path, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", "set up the run store");
}

}  // namespace

struct RunStore::State {
  State(Database opened, std::string file)
      : path(std::move(file)),
        database(std::move(opened)),
        put_step(make(fmt::format(
            "INSERT OR REPLACE INTO steps({}, {}) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            step_columns, wait_columns))),
        drop_waits(make("DELETE FROM waits WHERE step = ?")),
        put_waits(make(
            fmt::format("INSERT OR REPLACE INTO waits(step, rank, {}, {}) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
                        wait_columns, byte_columns))),
        put_evaluation(make("INSERT OR REPLACE INTO evaluations(step, loss, tokens) VALUES(?,?,?)")),
        put_event(make("INSERT INTO events(time, kind, rank, text) VALUES(?,?,?,?)")),
        put_prediction(make(fmt::format(
            "INSERT OR REPLACE INTO prediction(one, cluster, seconds, {}) VALUES(1,?,?,?,?,?,?,?,?,?,?,?)",
            prediction_columns()))),
        put_meta(make("INSERT OR REPLACE INTO meta(key, value) VALUES(?,?)")),
        get_steps(make(fmt::format("SELECT {}, {} FROM steps ORDER BY step", step_columns, wait_columns))),
        get_waits(make(fmt::format("SELECT rank, {}, {} FROM waits WHERE step = ? ORDER BY rank",
                                   wait_columns, byte_columns))),
        get_evaluations(make("SELECT step, loss, tokens FROM evaluations ORDER BY step")),
        get_events(make("SELECT time, kind, rank, text FROM events ORDER BY id")),
        get_prediction(
            make(fmt::format("SELECT cluster, seconds, {} FROM prediction", prediction_columns()))),
        get_meta(make("SELECT value FROM meta WHERE key = ?")) {}

  void put_step_row(const StepRecord& r);
  Statement make(const std::string& sql) { return prepare(database.get(), path, sql); }
  Query query(const Statement& statement) { return Query(database.get(), path, statement.get()); }

  std::string path;
  Database database;  // before the statements: closed after them
  Statement put_step, drop_waits, put_waits, put_evaluation, put_event, put_prediction, put_meta;
  Statement get_steps, get_waits, get_evaluations, get_events, get_prediction, get_meta;
};

RunStore::RunStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunStore::RunStore(RunStore&&) noexcept = default;
RunStore& RunStore::operator=(RunStore&&) noexcept = default;
RunStore::~RunStore() = default;

RunStore RunStore::create(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) {
    throw RunError(fmt::format("{}: already exists; choose another --run-dir.", path.string()));
  }
  Database database = create_database(path);
  set_modes(database.get(), path.string());
  const std::string sql =
      fmt::format("BEGIN; PRAGMA application_id = {}; PRAGMA user_version = {}; {} COMMIT;", application_id,
                  schema_version, schema);
  execute(database.get(), path.string(), sql, "create the run store");
  return RunStore(std::make_unique<State>(std::move(database), path.string()));
}

RunStore RunStore::open(const std::filesystem::path& path) {
  Database database = open_database_to_read(path);
  const int64_t id = pragma(database.get(), path.string(), "application_id");
  const int64_t version = pragma(database.get(), path.string(), "user_version");
  if (id != application_id) {
    throw RunError(
        fmt::format("{}: an SQLite file, but not a run store. Give the folder of a run.", path.string()));
  }
  if (version != schema_version) {
    throw RunError(
        fmt::format("{}: its schema is version {}, this build reads {}. Use the build that wrote it.",
                    path.string(), version, schema_version));
  }
  return RunStore(std::make_unique<State>(std::move(database), path.string()));
}

void RunStore::State::put_step_row(const StepRecord& r) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  constexpr ExposedSeconds unknown = {none, none, none, none};
  const StepWaits waits = r.waits.value_or(StepWaits{unknown, unknown});
  Query row = query(put_step);
  row.bind(r.step).bind(r.loss).bind(r.grad_norm).bind(r.lr).bind(r.tokens).bind(r.seconds);
  row.bind(r.tokens_per_second).bind(r.tflops).bind(r.mfu).bind(r.memory_bytes).bind(r.mfu_causal);
  row.bind(int64_t{r.skipped}).bind(waits.exposed).bind(waits.under_way).row("write a step");
}

void RunStore::append_step(const StepRecord& record, const std::vector<WaitMessage>& ranks) {
  Transaction transaction(state_->database.get(), state_->path);
  state_->put_step_row(record);
  state_->query(state_->drop_waits).bind(record.step).row("write a step");
  for (const WaitMessage& one : ranks) {
    Query row = state_->query(state_->put_waits);
    row.bind(record.step).bind(int64_t{one.rank}).bind(one.waits.exposed).bind(one.waits.under_way);
    row.bind(one.tensor_bytes).bind(one.resident_bytes).row("write what a rank waited for");
  }
  transaction.commit();
}

void RunStore::append_evaluation(const EvaluationMessage& e) {
  state_->query(state_->put_evaluation).bind(e.step).bind(e.loss).bind(e.tokens).row("write an evaluation");
}

void RunStore::append_event(const RunEvent& event) {
  Query query = state_->query(state_->put_event);
  query.bind(event.time).bind(std::string_view(event.kind)).bind(int64_t{event.rank});
  query.bind(std::string_view(event.text)).row("write an event");
}

void RunStore::set_prediction(const Prediction& prediction) {
  Query query = state_->query(state_->put_prediction);
  query.bind(std::string_view(prediction.cluster)).bind(prediction.seconds);
  for (const double part : prediction.parts) query.bind(part);
  query.row("write the prediction");
}

void RunStore::set_meta(std::string_view key, std::string_view value) {
  state_->query(state_->put_meta).bind(key).bind(value).row("write a fact about the run");
}

std::vector<StepRecord> RunStore::steps() const {
  Query query = state_->query(state_->get_steps);
  std::vector<StepRecord> records;
  while (query.row("read the steps")) {
    StepRecord& r = records.emplace_back();
    r.step = query.integer();
    r.loss = query.real();
    r.grad_norm = query.real();
    r.lr = query.real();
    r.tokens = query.integer();
    r.seconds = query.real();
    r.tokens_per_second = query.real();
    r.tflops = query.real();
    r.mfu = query.real();
    r.memory_bytes = query.integer();
    r.mfu_causal = query.real();
    r.skipped = query.integer() != 0;
    StepWaits waits;
    waits.exposed = query.exposed();
    waits.under_way = query.exposed();
    if (!std::isnan(waits.exposed.total())) r.waits = waits;
  }
  return records;
}

std::vector<WaitMessage> RunStore::waits(int64_t step) const {
  Query query = state_->query(state_->get_waits);
  query.bind(step);
  std::vector<WaitMessage> ranks;
  while (query.row("read what the ranks waited for")) {
    WaitMessage& one = ranks.emplace_back();
    one.step = step;
    one.rank = static_cast<int>(query.integer());
    one.waits.exposed = query.exposed();
    one.waits.under_way = query.exposed();
    one.tensor_bytes = query.integer();
    one.resident_bytes = query.integer();
  }
  return ranks;
}

std::vector<EvaluationMessage> RunStore::evaluations() const {
  Query query = state_->query(state_->get_evaluations);
  std::vector<EvaluationMessage> evaluations;
  while (query.row("read the evaluations")) {
    EvaluationMessage& e = evaluations.emplace_back();
    e.step = query.integer();
    e.loss = query.real();
    e.tokens = query.integer();
  }
  return evaluations;
}

std::vector<RunEvent> RunStore::events() const {
  Query query = state_->query(state_->get_events);
  std::vector<RunEvent> events;
  while (query.row("read the events")) {
    RunEvent& event = events.emplace_back();
    event.time = query.real();
    event.kind = query.text();
    event.rank = static_cast<int>(query.integer());
    event.text = query.text();
  }
  return events;
}

std::optional<Prediction> RunStore::prediction() const {
  Query query = state_->query(state_->get_prediction);
  if (!query.row("read the prediction")) return std::nullopt;
  Prediction prediction{query.text(), query.real(), {}};
  for (double& part : prediction.parts) part = query.real();
  return prediction;
}

std::optional<std::string> RunStore::meta(std::string_view key) const {
  Query query = state_->query(state_->get_meta);
  query.bind(key);
  if (!query.row("read a fact about the run")) return std::nullopt;
  return query.text();
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep::observe
