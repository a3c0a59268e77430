#include "cli/demo/demo_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/text.h"

namespace gradloom::cli {
namespace {

std::string times_text(double of_ms, double ms) {
  return ms <= 0 ? "" : ms / of_ms >= 99.95 ? fmt::format("{:.0f}", ms / of_ms) : fmt::format("{:.1f}", ms / of_ms);
}

}  // namespace

DemoTable::DemoTable()
    : table_({"op", "call", ">error", ">cold ms", ">ms", ">x roof", ">loop", ">numpy", ">PyTorch", ""},
             {21, 28, 7, 7, 7, 6, 5, 5, 7, 5}),
      terminal_(isatty(STDERR_FILENO) != 0) {
  text(table_.line(table_.headers()));
}

void DemoTable::working(const std::string& what) {
  if (terminal_) to_stderr("\r\x1b[K{} ...", what);
}

void DemoTable::row(const DemoRow& row) {
  ++rows_;
  if (!row.right) ++wrong_;
  text(table_.line({row.op, row.call, row.error == 0 ? "0" : fmt::format("{:.1e}", row.error),
                    milliseconds_text(row.cold_ms), milliseconds_text(row.ms),
                    row.roof_ms > 0 ? fmt::format("{:.2f}", row.ms / row.roof_ms) : "", times_text(row.ms, row.loop_ms),
                    times_text(row.ms, row.peers.numpy_ms), times_text(row.ms, row.peers.torch_ms),
                    row.right ? "right" : "WRONG"}));
}

void DemoTable::text(const std::string& lines) {
  if (terminal_) to_stderr("\r\x1b[K");
  fmt::print("{}", lines);
  std::fflush(stdout);
}

}  // namespace gradloom::cli
