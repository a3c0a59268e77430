// Each public struct that a user fills in, by one of its members.
#include <gradloom/elementwise.h>
#include <gradloom/matmul.h>
#include <gradloom/runtime.h>

namespace gradloom {

const RuntimeOptions runtime_options{.threads = 1};
const RunOptions run_options{.accumulate = true};
const LaunchOptions launch_options{.check = CheckMode::sync};
const KernelOptions kernel_options{.default_schedule = false};

const ArgumentSchema argument{.name = "X"};
const AttributeSchema attribute{.name = "axis"};
const OpSchema schema{.name = "Op"};
const Strategy strategy{.name = "direct"};
const Operand operand{.present = true};
const Attributes attributes;
const Request request{.attributes = attributes};
const OutputInfo output{.wanted = true};
const View view{.index = 1};
const Plan plan{.bytes_read = 1};
const ScalarSource source{.view = 1};

const Matmul product{.prefix = "x"};
const MatmulHints hints{.m = 1};
const ir::ProductTiles tiles{.rows = 1};
const ir::Target target{.threads = 1};
const ir::Facts facts{.injective = true};
const ir::BufferNode buffer{.name = "x"};
const ir::Var variable{.name = "i"};
const ir::Scalar scalar{.min = ir::Expr(0)};
const ir::Kernel kernel{.name = "k"};

}  // namespace gradloom
