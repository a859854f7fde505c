#include "observe/database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include "base/error.hpp"

namespace lockstep::observe {
namespace {

constexpr int busy_milliseconds = 2000;

enum class Use { write, read };

std::string advice_to_reader(int code) {
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "Another program holds it locked: close that program (a sqlite3 shell?) and try again.";
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return "Check that you may read it. A run that was killed left run.db-wal beside it, which takes a "
             "folder that you may write to: copy the run folder to one.";
    case SQLITE_IOERR:
      return "The disk failed: check it.";
    default:
      return "The file is damaged or is not a run store: restore it, or name another run.";
  }
}

std::string advice(int code) {
  switch (code & 0xFF) {
    case SQLITE_FULL:
      return "The disk is full: free some space, then start the run again.";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "Another program holds it locked: close that program (a sqlite3 shell?) and try again.";
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return "Check that the folder exists and that you may write there, or choose another --run-dir.";
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return "The file is damaged or is not a run store: restore it, or start a new run.";
    case SQLITE_IOERR:
      return "The disk failed or is full: check it, or choose another --run-dir.";
    default:
      return "Choose another --run-dir if it goes on.";
  }
}

[[noreturn]] void fail_to(sqlite3* database, const std::string& path, std::string_view what, Use use) {
  const int code = database ? sqlite3_extended_errcode(database) : SQLITE_NOMEM;
  throw RunError(fmt::format("{}: cannot {}: {}. {}", path, what,
                             database ? sqlite3_errmsg(database) : "no memory",
                             use == Use::read ? advice_to_reader(code) : advice(code)));
}

Database open_database(const std::string& path, const std::string& name, int flags, Use use) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) fail_to(raw, path, "open the run store", use);
  sqlite3_busy_timeout(raw, busy_milliseconds);
  return database;
}

}  // namespace

void CloseDatabase::operator()(sqlite3* database) const { sqlite3_close_v2(database); }
void Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database create_database(const std::filesystem::path& path) {
  return open_database(path.string(), path.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, Use::write);
}

// Without a write-ahead log nobody is writing, and no lock is needed, which would be a file of its own
// (https://sqlite.org/uri.html: immutable).
Database open_database_to_read(const std::filesystem::path& path) {
  std::string name = "file://";
  for (const char c : std::filesystem::absolute(path).string()) {
    name += c == '%' || c == '?' || c == '#' ? fmt::format("%{:02X}", c) : std::string(1, c);
  }
  if (!std::filesystem::exists(path.string() + "-wal")) name += "?immutable=1";
  return open_database(path.string(), name, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, Use::read);
}

void fail(sqlite3* database, const std::string& path, std::string_view what) {
  fail_to(database, path, what, sqlite3_db_readonly(database, "main") == 1 ? Use::read : Use::write);
}

void execute(sqlite3* database, const std::string& path, const std::string& sql, std::string_view what) {
  if (sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail(database, path, what);
}

Statement prepare(sqlite3* database, const std::string& path, const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(database, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  Statement statement(raw);
  if (code != SQLITE_OK) fail(database, path, "read the run store");
  return statement;
}

}  // namespace lockstep::observe
