#pragma once
// The demo's table: each row is printed as soon as it is measured.
#include <string>

#include "cli/demo/peers.h"
#include "cli/text.h"

namespace gradloom::cli {

struct DemoRow {
  std::string op, call;
  double error = 0;  // the largest difference, relative above 1
  bool right = false;
  double cold_ms = 0, ms = 0;
  double roof_ms = 0, loop_ms = 0;  // 0: none
  PeerTimes peers;
};

class DemoTable {
 public:
  DemoTable();
  // The current step, on a terminal, until the next line.
  void working(const std::string& what);
  void row(const DemoRow& row);
  void text(const std::string& lines);  // below the table, or between its rows
  int rows() const { return rows_; }
  int wrong() const { return wrong_; }

 private:
  Table table_;
  int rows_ = 0, wrong_ = 0;
  bool terminal_;
};

}  // namespace gradloom::cli
