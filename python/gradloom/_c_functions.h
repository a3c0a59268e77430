#ifndef GRADLOOM_C_FUNCTIONS_H
#define GRADLOOM_C_FUNCTIONS_H
// The library's C interface as a table: the module exports no symbols, and another extension in the process calls it
// through `_gradloom._c_functions()`, a capsule of this name that holds a GradloomFunctions. A change of the struct
// raises the version; whoever finds another one, or another size, refuses it.
#include <gradloom/gradloom.h>

#define GRADLOOM_FUNCTIONS_NAME "gradloom.c_functions"
#define GRADLOOM_FUNCTIONS_VERSION 2

struct GradloomFunctions {
  uint32_t version;
  uint32_t size;

  decltype(&gradloom_last_error) last_error;
  decltype(&gradloom_runtime_options_init_sized) runtime_options_init_sized;
  decltype(&gradloom_runtime_create) runtime_create;
  decltype(&gradloom_runtime_destroy) runtime_destroy;
  decltype(&gradloom_run_options_init_sized) run_options_init_sized;
  decltype(&gradloom_attributes_create) attributes_create;
  decltype(&gradloom_attributes_destroy) attributes_destroy;
  decltype(&gradloom_attributes_set_int) attributes_set_int;
  decltype(&gradloom_attributes_set_ints) attributes_set_ints;
  decltype(&gradloom_attributes_set_string) attributes_set_string;
  decltype(&gradloom_prepare) prepare;
  decltype(&gradloom_prepared_destroy) prepared_destroy;
  decltype(&gradloom_prepared_run_into) prepared_run_into;

  // Memory for the outputs of another library's tensors, kept for reuse up to a budget that is 0 at first. A block is
  // released with the bytes that it was allocated with, under whatever budget is in force by then: beyond it, it is
  // freed. Null: there is no memory.
  void* (*memory_allocate)(int64_t bytes);
  void (*memory_release)(void* data, int64_t bytes);
  void (*memory_budget)(int64_t bytes);  // frees all that is kept
  int64_t (*memory_kept)(void);
};

#endif
