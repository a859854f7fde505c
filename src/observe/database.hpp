// An SQLite file, opened, with failures as RunErrors that name it and say what to do.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep::observe {

struct CloseDatabase {
  void operator()(sqlite3* database) const;
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const;
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

// To write; made where there is none.
Database create_database(const std::filesystem::path& path);
// To be read, and nothing written, not even beside it.
Database open_database_to_read(const std::filesystem::path& path);

// `path` is for messages, as below.
void execute(sqlite3* database, const std::string& path, const std::string& sql, std::string_view what);
Statement prepare(sqlite3* database, const std::string& path, const std::string& sql);

// Throws what went wrong last.
[[noreturn]] void fail(sqlite3* database, const std::string& path, std::string_view what);

}  // namespace lockstep::observe
