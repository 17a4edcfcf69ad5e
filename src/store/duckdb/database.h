// One open database file: opening with all its checks, one connection, and the guard that DuckDB's own lock does not
// give, against opening a file twice in one process.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "store/duckdb/duckdb_store.h"
#include "store/duckdb/handles.h"

namespace tailspan::store::duckdb {

// Marks a file as open in this process while it lives.
class FileClaim {
 public:
  static base::Result<std::unique_ptr<FileClaim>> Take(const std::string& path);
  ~FileClaim();
  FileClaim(const FileClaim&) = delete;
  FileClaim& operator=(const FileClaim&) = delete;

 private:
  explicit FileClaim(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

class Database {
 public:
  static base::Result<std::unique_ptr<Database>> Create(const std::string& path, const Options& options);
  static base::Result<std::unique_ptr<Database>> Open(const std::string& path, Access access, const Options& options);

  duckdb_connection connection() const { return connection_.get(); }
  // Opens the file anew after DuckDB has declared its state broken.
  base::Status Reopen();

 private:
  Database(std::string path, Access access, const Options& options)
      : path_(std::move(path)), access_(access), options_(options) {}
  base::Status Connect(Access access);
  base::Status CheckSchema();

  std::string path_;
  Access access_;
  Options options_;
  std::unique_ptr<FileClaim> claim_;
  DatabaseHandle database_;
  ConnectionHandle connection_;
};

}  // namespace tailspan::store::duckdb
