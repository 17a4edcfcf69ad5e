// docs/schema.md against a real file.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "store/duckdb/duckdb_store.h"
#include "store/duckdb/handles.h"
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
namespace {

constexpr char kMarker[] = "<!-- from here on: generated, by the store's test with TAILSPAN_UPDATE_DOCS=1 -->\n";

using TextRows = std::vector<std::vector<std::string>>;

TextRows QueryTexts(duckdb_connection connection, const std::string& sql, size_t columns) {
  Rows result;
  base::Status status = Query(connection, sql, nullptr, &result);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  TextRows out;
  while (status.ok()) {
    auto chunk = result.Next();
    size_t n = chunk.ok() && *chunk ? duckdb_data_chunk_get_size(chunk->get()) : 0;
    if (n == 0) break;
    for (size_t row = 0; row < n; ++row) {
      std::vector<std::string>& texts = out.emplace_back();
      for (size_t i = 0; i < columns; ++i) {
        texts.emplace_back(TextAt(DataOf<duckdb_string_t>(duckdb_data_chunk_get_vector(chunk->get(), i)), row));
      }
    }
  }
  return out;
}

// DuckDB spells an ENUM out wherever it is used; its name is enough.
std::string TypeName(std::string type) {
  for (const EnumType& known : EnumTypes()) {
    std::string spelled;
    for (const std::string& name : known.names) spelled += (spelled.empty() ? "'" : ", '") + name + "'";
    spelled = "ENUM(" + spelled + ")";
    for (size_t at; (at = type.find(spelled)) != std::string::npos;) type.replace(at, spelled.size(), known.sql_name);
  }
  return type;
}

std::string Describe(duckdb_connection connection) {
  std::string out;
  std::map<std::string, TextRows> columns;
  for (auto& row : QueryTexts(connection,
                              "SELECT table_name, column_name, data_type, coalesce(comment, '') FROM duckdb_columns() "
                              "WHERE NOT internal ORDER BY table_oid, column_index",
                              4)) {
    columns[row[0]].push_back(row);
  }
  for (const auto& table :
       QueryTexts(connection,
                  "SELECT table_name, coalesce(comment, '') FROM duckdb_tables() WHERE NOT internal "
                  "ORDER BY table_oid",
                  2)) {
    EXPECT_NE(table[1], "") << "table " << table[0] << " is not described";
    out += fmt::format("\n## {}\n{}\n\n| column | type | |\n|---|---|---|\n", table[0], table[1]);
    for (const auto& column : columns[table[0]]) {
      EXPECT_NE(column[3], "") << table[0] << "." << column[1] << " is not described";
      out += fmt::format("| `{}` | {} | {} |\n", column[1], TypeName(column[2]), column[3]);
    }
  }
  out += "\n## Views\n\n| view | | columns |\n|---|---|---|\n";
  for (const View& view : Views()) {
    std::string names;
    for (const auto& column : columns[view.name]) names += (names.empty() ? "`" : ", `") + column[1] + "`";
    out += fmt::format("| `{}` | {} | {} |\n", view.name, view.doc, names);
  }
  out += "\n## Closed lists\n\n| type | values |\n|---|---|\n";
  for (const EnumType& type : EnumTypes()) {
    std::string names;
    for (const std::string& name : type.names) names += (names.empty() ? "" : " ") + name;
    out += fmt::format("| `{}` | {} |\n", type.sql_name, names);
  }
  return out;
}

TEST(Schema, TheDocumentIsWhatAFileSays) {
  std::string folder = (std::filesystem::temp_directory_path() / "schema_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/r.duckdb";
  {
    auto made = Create(path);
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
  std::string described;
  {
    duckdb_database raw = nullptr;
    ASSERT_EQ(duckdb_open(path.c_str(), &raw), DuckDBSuccess);
    DatabaseHandle database(raw);
    duckdb_connection raw_connection = nullptr;
    ASSERT_EQ(duckdb_connect(raw, &raw_connection), DuckDBSuccess);
    ConnectionHandle connection(raw_connection);
    described = Describe(connection.get());
  }
  std::filesystem::remove_all(folder);

  const std::string document = TAILSPAN_SOURCE_DIR "/docs/schema.md";
  std::stringstream text;
  text << std::ifstream(document).rdbuf();
  const size_t marker = text.str().find(kMarker);
  ASSERT_NE(marker, std::string::npos);
  const std::string head = text.str().substr(0, marker + sizeof kMarker - 1);
  if (getenv("TAILSPAN_UPDATE_DOCS"))
    std::ofstream(document) << head << described;
  else
    EXPECT_EQ(text.str().substr(head.size()), described) << "run store_test with TAILSPAN_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace tailspan::store::duckdb
