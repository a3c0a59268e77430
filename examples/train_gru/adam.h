#pragma once
// The optimizer: Adam, with a learning rate that decays linearly to 0 over the training.
#include "model.h"

namespace train_gru {

class Adam {
 public:
  Adam(Runtime& runtime, const Parameters& parameters, const Parameters& gradient, double rate, int64_t steps);
  void step();

 private:
  double rate_;
  int64_t steps_, done_ = 0;
  ScalarCall update_;
};

}  // namespace train_gru
