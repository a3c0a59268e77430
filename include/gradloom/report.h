#pragma once
// Statistics that a runtime reports of a call and of itself.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/op.h"

#pragma GCC visibility push(default)
namespace gradloom {

// Where a compilation's time went, in milliseconds.
struct CompileStages {
  double emit_ms = 0, optimize_ms = 0, codegen_ms = 0, link_ms = 0;
  CompileStages& operator+=(const CompileStages& more) {
    emit_ms += more.emit_ms, optimize_ms += more.optimize_ms, codegen_ms += more.codegen_ms, link_ms += more.link_ms;
    return *this;
  }
};

// Which kernel served a call and how: for tables and tests.
struct KernelReport {
  std::string op, strategy, target;
  Determinism determinism = Determinism::sequential;    // of the kernel, never weaker than requested
  bool compiled = false;                                // by this very call
  bool from_disk = false;                               // its code was loaded, not compiled
  bool any_shape = false;                               // it serves every shape of the rank
  bool tuned = false;                                   // the tuning log chose its strategy and schedule
  double build_ms = 0;                                  // author, schedule, passes
  std::vector<std::pair<std::string, double>> pass_ms;  // of build_ms: the lowering passes in their order; empty when
                                                        // its code is from the disk
  double compile_ms = 0;                                // LLVM
  CompileStages stages;                                 // of compile_ms
  std::vector<std::string> schedule_trace;
};

struct Stats {
  int64_t hits = 0, misses = 0, compiles = 0, launches = 0, evictions = 0, entries = 0, code_bytes = 0;
  double compile_ms = 0;
  CompileStages stages;  // of compile_ms
  double build_ms = 0;   // author, schedule, passes
  double read_ms = 0;    // of files from the disk, with all checks
  double load_ms = 0;    // of code from the disk: linking it
  // Of the compiles and launches, those of the interpreter: all of them on target interpreter, those of ops of shapes
  // on a GPU.
  int64_t interpreted = 0, interpreter_launches = 0;

  // The disk. A miss in memory is a hit or a miss there; rejected: files that were torn, foreign or unreadable.
  int64_t disk_hits = 0, disk_misses = 0, disk_rejected = 0, disk_write_failures = 0, disk_evictions = 0,
          disk_bytes_read = 0, disk_bytes_written = 0;
  std::map<std::string, int64_t>
      disk_miss_parts;  // how often each part of the key differed from that of the nearest known entry
  std::vector<std::string> disk_recent_misses;  // the last of them, a line each

  // generic_first.
  int64_t generic_calls = 0;       // answered by an any-shape kernel
  int64_t specialised = 0;         // specialised kernels that replaced an any-shape one
  int64_t specialise_refused = 0;  // that failed to compile or to pass the check: the any-shape kernel stays in use
  int64_t live_specialisations = 0;

  // Compilations of this process, by all its runtimes, that failed inside LLVM, which cannot be unwound: what they had
  // allocated stays allocated. Out of memory is the usual reason.
  int64_t abandoned_compiles = 0;

  // How often a strategy that the op chose was refused by its schedule or lowering, so that the next one served (each
  // is logged): a defect of gradloom's that only costs speed.
  int64_t strategies_refused = 0;

  // Tuning.
  int64_t tuned = 0;           // kernels made as the tuning log says
  int64_t tuning_runs = 0;     // calls whose candidates were measured
  int64_t tuning_ignored = 0;  // entries of the log that are damaged, of another format, or no longer serve their call
};

}  // namespace gradloom

#pragma GCC visibility pop
