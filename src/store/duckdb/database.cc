#include "store/duckdb/database.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>

#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
namespace {

std::mutex claims_mutex;
std::set<std::string>& Claims() {
  static std::set<std::string> claims;
  return claims;
}

// The folder's real path plus the file's name, for a file that need not exist yet.
base::Result<std::string> RealPath(const std::string& path) {
  size_t slash = path.find_last_of('/');
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty()) return base::Error{base::Code::kInvalidArgument, "'" + path + "' names no file"};
  char* real = realpath(folder.c_str(), nullptr);
  if (!real) return base::OsError(errno, "folder " + folder);
  std::string out = std::string(real) + "/" + name;
  free(real);
  return out;
}

bool Exists(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0;
}

bool HasLog(const std::string& path) {
  struct stat status;
  return stat((path + ".wal").c_str(), &status) == 0 && status.st_size > 0;
}

// DuckDB's files carry "DUCK" after a checksum of eight bytes.
base::Status CheckMagic(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return base::Error{base::Code::kNotFound, path + ": there is no such recording", ENOENT};
    return base::OsError(errno, path);
  }
  if (!S_ISREG(status.st_mode)) return base::Error{base::Code::kDataLoss, path + " is not a file; name a recording"};
  std::ifstream file(path, std::ios::binary);
  if (!file) return base::OsError(errno, path);
  char head[12] = {};
  file.read(head, sizeof head);
  if (file.gcount() != sizeof head || std::memcmp(head + 8, "DUCK", 4) != 0) {
    return base::Error{base::Code::kDataLoss,
                       path + " is not a tailspan recording (no DuckDB file); name another file"};
  }
  return {};
}

base::Status CheckLibrary() {
  std::string wanted =
      fmt::format("v{}.{}.{}", DUCKDB_API_VERSION_MAJOR, DUCKDB_API_VERSION_MINOR, DUCKDB_API_VERSION_PATCH);
  if (duckdb_library_version() == wanted) return {};
  return base::Error{base::Code::kUnsupported,
                     fmt::format("libduckdb.so is {}, this program was built for {}: install tailspan anew",
                                 duckdb_library_version(), wanted)};
}

base::Error OpenError(const std::string& path, const char* message) {
  base::Error error = ErrorFrom(message);
  if (error.code == base::Code::kUnavailable) {
    error.message = "another process has this recording open; wait until it is finished, or copy the file";
  } else if (error.code == base::Code::kInternal) {
    error.code = base::Code::kDataLoss;
  }
  return std::move(error).WithContext(path);
}

}  // namespace

base::Result<std::unique_ptr<FileClaim>> FileClaim::Take(const std::string& path) {
  auto real = RealPath(path);
  if (!real.ok()) return std::move(real).error();
  std::lock_guard<std::mutex> lock(claims_mutex);
  if (!Claims().insert(*real).second) {
    return base::Error{base::Code::kUnavailable, path + ": this recording is already open in this process"};
  }
  return std::unique_ptr<FileClaim>(new FileClaim(*real));
}

FileClaim::~FileClaim() {
  std::lock_guard<std::mutex> lock(claims_mutex);
  Claims().erase(path_);
}

base::Status Database::Connect(Access access) {
  base::Status status = CheckLibrary();
  if (!status.ok()) return status;
  duckdb_config raw_config = nullptr;
  duckdb_create_config(&raw_config);
  ConfigHandle config(raw_config);
  const std::string memory = fmt::format("{}MiB", options_.memory_bytes_max >> 20);
  const std::string log = fmt::format("{}MiB", options_.log_bytes_max >> 20);
  const std::pair<const char*, const char*> settings[] = {
      {"access_mode", access == Access::kReadOnly ? "READ_ONLY" : "READ_WRITE"},
      {"threads", "1"},  // a recorder must not take more CPUs, and one thread needs less CPU in all
      {"memory_limit", memory.c_str()},
      {"checkpoint_threshold", log.c_str()},
      {"autoinstall_known_extensions", "false"},  // never fetches anything
      {"autoload_known_extensions", "false"},
  };
  for (const auto& [name, value] : settings) {
    if (duckdb_set_config(config.get(), name, value) == DuckDBError) {
      return base::Error{base::Code::kInternal, fmt::format("DuckDB does not take {}={}", name, value)};
    }
  }
  duckdb_database database = nullptr;
  char* message = nullptr;
  if (duckdb_open_ext(path_.c_str(), &database, config.get(), &message) == DuckDBError) {
    base::Error error = OpenError(path_, message);
    duckdb_free(message);
    return error;
  }
  database_.reset(database);
  duckdb_connection connection = nullptr;
  if (duckdb_connect(database, &connection) == DuckDBError) {
    return base::Error{base::Code::kInternal, path_ + ": DuckDB gives no connection"};
  }
  connection_.reset(connection);
  return {};
}

base::Status Database::CheckSchema() {
  auto tables = QueryInteger(connection(), "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'tailspan_schema'");
  if (!tables.ok()) return OpenError(path_, tables.error().message.c_str());
  if (*tables == 0) {
    return base::Error{base::Code::kDataLoss,
                       path_ + " is a DuckDB file, but no tailspan recording; name another file"};
  }
  auto version = QueryInteger(connection(), "SELECT max(version) FROM tailspan_schema");
  if (!version.ok()) return OpenError(path_, version.error().message.c_str());
  if (*version != kSchemaVersion) {
    return base::Error{base::Code::kDataLoss,
                       fmt::format("{} has tables of version {}, this tailspan reads version {}: use the tailspan that "
                                   "recorded it, or record again",
                                   path_, *version, kSchemaVersion)};
  }
  return {};
}

base::Result<std::unique_ptr<Database>> Database::Create(const std::string& path, const Options& options) {
  std::unique_ptr<Database> self(new Database(path, Access::kReadWrite, options));
  auto claim = FileClaim::Take(path);
  if (!claim.ok()) return std::move(claim).error();
  self->claim_ = std::move(*claim);
  if (Exists(path)) {
    return base::Error{base::Code::kInvalidArgument, path + " exists already; choose another file or remove it"};
  }
  if (Exists(path + ".wal")) {
    return base::Error{base::Code::kInvalidArgument, path + ".wal is left of another recording; remove it first"};
  }
  base::Status status = self->Connect(Access::kReadWrite);
  if (status.ok()) status = Execute(self->connection(), SchemaSql());
  if (!status.ok()) {
    // Nothing of it is worth keeping, and a half-made file would be in the way of the next try.
    self->connection_.reset();
    self->database_.reset();
    unlink(path.c_str());
    unlink((path + ".wal").c_str());
    return std::move(status).error();
  }
  return self;
}

base::Result<std::unique_ptr<Database>> Database::Open(const std::string& path, Access access, const Options& options) {
  auto claim = FileClaim::Take(path);
  if (!claim.ok()) return std::move(claim).error();
  base::Status status = CheckMagic(path);
  if (!status.ok()) return std::move(status).error();
  std::unique_ptr<Database> self(new Database(path, access, options));
  self->claim_ = std::move(*claim);
  if (access == Access::kReadOnly && HasLog(path)) {
    // Closing a file that was open for writing folds the log in.
    status = self->Connect(Access::kReadWrite);
    self->connection_.reset();
    self->database_.reset();
    if (!status.ok()) {
      return std::move(status).error().WithContext("after a crash " + path +
                                                   ".wal has to be folded in, which needs to write");
    }
  }
  status = self->Connect(access);
  if (status.ok()) status = self->CheckSchema();
  if (!status.ok()) return std::move(status).error();
  return self;
}

base::Status Database::Reopen() {
  connection_.reset();
  database_.reset();
  return Connect(access_);
}

}  // namespace tailspan::store::duckdb
