#pragma once
// Schedules the outermost loops of a kernel in turn, each in a kernel without the others: a step costs as much as its
// nest is large, so that a kernel of many nests takes time in proportion.
#include "gradloom/schedule.h"

namespace gradloom::ir {

struct Scheduled {
  Kernel kernel;
  std::vector<std::string> trace;  // replays on the kernel as it was
};
// `steps` finds its loop, what stands around it, and loops and buffers that only take up names of other nests.
Scheduled each_nest(const Kernel& kernel, const std::function<void(Schedule& nest, Loop outermost)>& steps);

}  // namespace gradloom::ir
