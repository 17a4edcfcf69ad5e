# Everything from outside, in one place. Versions are those of Debian 12; docs/decisions/0002-dependencies.md says why each.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
if(TAILSPAN_TESTS)
  find_package(GTest REQUIRED)
endif()
include(${CMAKE_SOURCE_DIR}/third_party/duckdb/duckdb.cmake)
