# The DuckDB library as target `duckdb`. The build tree mirrors the installed one: programs in bin/, the library in
# lib/tailspan/, found by $ORIGIN. So a build tree can be moved, and what is tested is what is installed.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(duckdb_cpu arm64)
else()
  set(duckdb_cpu x64)
endif()
set(duckdb_package ${CMAKE_CURRENT_LIST_DIR}/node_modules/@duckdb/node-bindings-linux-${duckdb_cpu})
if(NOT EXISTS ${duckdb_package}/libduckdb.so)
  message(FATAL_ERROR "libduckdb.so is missing: run third_party/duckdb/fetch")
endif()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tailspan)
file(COPY_FILE ${duckdb_package}/libduckdb.so ${CMAKE_BINARY_DIR}/lib/tailspan/libduckdb.so ONLY_IF_DIFFERENT)

add_library(duckdb SHARED IMPORTED GLOBAL)
set_target_properties(duckdb PROPERTIES
  IMPORTED_LOCATION ${CMAKE_BINARY_DIR}/lib/tailspan/libduckdb.so
  IMPORTED_SONAME libduckdb.so
  INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR})

set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib/tailspan")
install(FILES ${duckdb_package}/libduckdb.so DESTINATION lib/tailspan)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/LICENSE DESTINATION share/doc/tailspan/duckdb)
