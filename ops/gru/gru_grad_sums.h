#pragma once
// The part of GRUGrad for all rows (position and batch) at once, after its steps: dX, dW, dR and dB from the changes
// (gradients) of the gates' inputs.
#include "ops/gru/gru_grad.h"

namespace gradloom {

class GradSums : protected GruNest {
 protected:
  GradSums(KernelFrame& frame, const GruWay& way, const ir::Target& target);

  // The requested outputs among them.
  void sum_all_rows();
  void schedule_sums(ir::Schedule& s) const;
  void add_to(int o, const Index& index, const Expr& total) {
    b.store(out_[o], index, ir::cast(dtype, options.accumulate ? value(out_[o], index) + total : total));
  }

  const bool linear_;
  bool recompute_;  // activation inputs are recomputed
  Buffer out_[5];
  Buffer x_, before_;
  // [D, row, gate * H + j]: the changes as they multiply W and as they multiply R; one buffer except linear before
  // reset. There a GPU has one too, of [dz^, dr^, dc^, dc^ r], where H is a constant.
  Buffer d_preactivation_, recurrent_;
  bool in_one() const { return linear_ && way_.in_blocks && ir::as_int(hidden).value_or(0) > 0; }

 private:
  void input_gradient();
  void input_weights();
  void recurrent_weights();
  void biases_gradient();
  // What dB sums: dz^, dr^, dc^ and, linear before reset, dc^ r.
  int slots() const { return linear_ ? 4 : 3; }

  // The sums over rows of each direction and column.
  struct RowSums {
    Expr count;                                  // of columns
    ir::Loop around = 0, columns = 0, rows = 0;  // the loop over directions; over columns; the reduction
  };
  std::vector<RowSums> row_sums_;
};

}  // namespace gradloom
