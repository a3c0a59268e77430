#pragma once
// GRUTraining and GRUGrad (ORT, com.microsoft) with what ONNX GRU has beyond them: directions, sequence lengths, clip,
// activations. What both ops share: arguments, their checks, and the parts of their nests.
//
// For direction d and batch n, a step reads x = X[p, n], h' (the state before it) and, with biases W*b and R*b,
//   z = f(x Wz' + h' Rz' + Wzb + Rzb)     r = f(x Wr' + h' Rr' + Wrb + Rrb)
//   c = g(x Wh' + (r h') Rh' + Whb + Rhb)          or, linear before reset, g(x Wh' + Whb + r (h' Rh' + Rhb))
//   h = (1 - z) c + z h'
// and stores HAll[p] = h, ZRH[p] = z | r | c. p is the step, or counted back from the sequence's end in the reverse
// direction.
#include "ir/index_math.h"
#include "ops/matmul/matmul_blocks.h"
#include "ops/patterns/activations.h"
#include "ops/plan_key.h"

namespace gradloom {

// The first inputs of both ops.
inline constexpr int gru_x = 0, gru_w = 1, gru_r = 2, gru_b = 3, gru_lens = 4, gru_h0 = 5;
// GRUGrad's others.
inline constexpr int gru_hall = 6, gru_zrh = 7, gru_dhall = 8, gru_dhfinal = 9;

// All that changes a kernel's code beside dtypes and shapes.
struct GruOptions {
  int directions = 1;
  bool reverse = false;  // direction 0 runs backward; direction 1 always does
  bool linear_before_reset = false;
  double clip = 0;                // 0: none
  Activation gate[2], hidden[2];  // f and g, by direction
  uint32_t given = 0;             // bit i: input i is present
  uint32_t wanted = 0;            // bit o: output o is asked for
  bool accumulate = false;
  bool flat_x = false;  // X's rows lie in line: its view is [S * N, I]

  bool reversed(int d) const { return d == 1 || reverse; }
  bool has(int input) const { return given >> input & 1; }
  bool wants(int output) const { return wanted >> output & 1; }
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.directions, key.reverse, key.linear_before_reset, key.clip, key.given, key.wanted, key.accumulate,
          key.flat_x, key.gate, key.hidden);
  }
};

struct GruSizes {
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, directions = 1;
};

std::vector<ArgumentSchema> gru_inputs(const std::vector<DType>& dtypes);
std::vector<AttributeSchema> gru_attributes();
std::vector<DType> gru_dtypes();

// Attributes and the shapes of inputs 0 to 5. Throws Error.
GruOptions check_gru(const OpSchema& schema, const Request& request, GruSizes& sizes);
// Refuses an input of another shape than `wanted`; `meaning` names its dims.
void check_gru_shape(const OpSchema& schema, const Request& request, int input, const Dims& wanted,
                     const char* meaning);
void check_gru_dtype(const OpSchema& schema, const Request& request, int input);
// The extents that loops have. No step of an empty batch does anything, nor does a sequence of no steps where nothing
// is given, or asked for, that has a batch alone: then both are 0, however large the other is said to be.
GruSizes looped_sizes(const GruSizes& sizes, const Request& request, const GruOptions& options, int last_state);
// Views of all inputs that are given, X flat where that is possible (`options.flat_x` is set).
void add_gru_views(const Request& request, int inputs, const GruSizes& loops, GruOptions& options, Plan& plan);
// The last dim as [gates, H]: indices of different gates never meet.
void split_gates(View& view, int64_t gates);
// `view`: its dims as loops have them.
void add_gru_output(Plan& plan, const GruOptions& options, int output, DType dtype, const Dims& dims, const Dims& view);

// Ends a plan: its key, and what the any-shape kernel serves.
void finish_gru_plan(Plan& plan, const GruOptions& options);

using AuthorGru = void (*)(KernelFrame& frame, const std::string& strategy, const ir::Target& target);
void author_gru_training(KernelFrame& frame, const std::string& strategy, const ir::Target& target);
void author_gru_grad(KernelFrame& frame, const std::string& strategy, const ir::Target& target);
void schedule_gru(ir::Schedule& schedule, const Plan& plan, const ir::Target& target);

// What both ops have in common; each adds its schema, its check and its nest.
class GruOp : public Op {
 public:
  GruOp(OpSchema schema, AuthorGru author);
  static bool sums_in_order(std::string_view strategy) { return strategy == "blocks" || strategy == "direct"; }
  Error explain(const Request& request, const Plan& plan, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const final;
};

// The buffers, extents and recurring pieces of both nests.
class GruNest {
 protected:
  using Expr = ir::Expr;
  using Buffer = ir::Buffer;
  using Index = std::vector<Expr>;

  GruNest(KernelFrame& frame, const std::string& strategy, const ir::Target& target,
          const std::vector<ArgumentSchema>& arguments);

  // After all views are taken: extents, checked lengths.
  void start(const Buffer& all_states);

  // On a GPU in blocks, but by strategy "direct".
  void multiply(const Matmul& product) {
    target_.gpu ? author_matmul_blocks(b, product, target_, in_order_) : author_matmul(b, product);
  }

  Buffer scratch(const char* name, std::vector<Expr> dims) { return b.alloc(name, sum, std::move(dims)); }
  // What a product over all steps reads. For matrix units it is rounded to the operands' dtype, as cuDNN's and
  // PyTorch's are.
  DType factor() const { return target_.matrix_units ? dtype : sum; }
  Expr value(const Buffer& buffer, Index index) const { return ir::cast(sum, ir::load(buffer, std::move(index))); }
  Expr number(double v) const { return ir::constant(sum, v); }
  // As it comes back from memory: f16 and bf16 round.
  Expr stored(const Expr& v) const { return ir::cast(sum, ir::cast(dtype, v)); }

  // X as rows [S * N, I] of factor(). With `masked`, rows beyond a sequence's end are 0.
  Buffer rows_of_x(bool masked);
  // Fills bias_.
  void add_biases();
  // to[d, m, n] = x[m] . W[d, n]: what the inputs add to every gate, at all positions at once.
  Buffer input_products(const Buffer& x);
  // The input of gate g (0: z, 1: r, 2: c) at a row, but for what the state adds.
  Expr input_part(const Buffer& products, int d, int g, const Expr& row, const Expr& j) const;
  Expr recurrent_bias(int d, const Expr& j) const { return value(bias_, {d, 3, j}); }
  // The candidate's input, linear before reset: `recurrent` is h' Rh' without bias.
  Expr candidate_input(const Expr& from_input, const Expr& r, const Expr& recurrent, int d, const Expr& j) const;

  // A part of the batch that runs through all steps on its own.
  struct Chunk {
    Expr first, count;  // its batches
    Expr capacity;      // the largest count
  };
  void each_chunk(const std::function<void(const Chunk&)>& body);  // one a thread, where that is worth it
  // The name of a loop that passes over all rows of a state: "shared" where its iterations are worth threads.
  std::string shared(const char* name) const {
    return threads > 1 && ir::as_int(ir::index_mul(rows, hidden)).value_or(1 << 16) >= 1 << 16 ? "shared" : name;
  }
  // One batch of a chunk at one step: batch n = first + i, position p, row = p * N + n.
  struct Place {
    Expr i, n, p, row;
  };
  using Visit = std::function<void(const Place&)>;
  // Where sequence i of the whole batch is at a step; beyond its end in the padding.
  Place place_of(int d, const Expr& i, const Expr& step) const;
  // `padded` where the sequence has ended: p is then the step itself, as padding lies at the end in both directions.
  void each_batch(int d, const Chunk& chunk, const Expr& step, const Visit& live, const Visit& padded);
  void at_batch(int d, const Expr& i, const Expr& n, const Expr& step, const Visit& live, const Visit& padded);
  void each_batch(const Chunk& chunk, const std::function<void(Expr i, Expr n)>& body);
  void each_column(const std::function<void(Expr j)>& body) { b.loop("j", 0, hidden, body); }
  // Of all sequences at a step, where they have no lengths of their own.
  Expr position(int d, const Expr& step) const {
    return options.reversed(d) ? ir::index_sub(ir::index_sub(steps, 1), step) : step;
  }
  Expr row_of(const Expr& p, const Expr& n) const { return ir::index_add(ir::index_mul(p, batch), n); }
  // Where column j of a gate lies in a row of gates side by side.
  Expr column(const Expr& gate, const Expr& j) const { return ir::index_add(ir::index_mul(gate, hidden), j); }

  // The input of an activation, clipped.
  Expr clipped(const Expr& x) const;

  KernelFrame& frame_;
  ir::KernelBuilder& b;
  const GruOptions options;
  const int64_t threads;
  const ir::Target target_;
  const bool in_order_;    // sums of the step-by-step products along k, and dB's
  std::vector<Buffer> in;  // by input; absent: not given
  DType dtype, sum;        // of the operands, of arithmetic
  Expr steps, batch, inputs, hidden, rows;
  Buffer lens_;  // checked lengths, [N]; absent without sequence_lens
  Buffer live_;  // [S * N]: whether the row is within its sequence
  Buffer bias_;  // Wb + Rb a gate, [D, 4, H]; linear before reset, slot 3 is Rbh and slot 2 Whb alone. Absent without B
};

}  // namespace gradloom
