#include "store/duckdb/duckdb_store.h"

#include "store/contract_test.h"

namespace tailspan::store::duckdb {
namespace {

using testing::StoreContract;
using testing::StoreKind;

INSTANTIATE_TEST_SUITE_P(Duckdb, StoreContract,
                         ::testing::Values(StoreKind{
                             "duckdb", [](const std::string& path) { return Create(path); },
                             [](const std::string& path) { return Open(path, Access::kReadWrite); }}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace tailspan::store::duckdb
