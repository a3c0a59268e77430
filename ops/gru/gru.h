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
#include "gradloom/plan_key.h"
#include "ir/index_math.h"
#include "ops/matmul/matmul_recurrent.h"
#include "ops/patterns/activations.h"

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

// A strategy's parameters.
struct GruWay {
  bool in_blocks = false;     // products by blocks of a GPU; else the same nest for every machine of so many threads
  bool in_order = true;       // sums of the step-by-step products along k, and dB's
  bool matrix_units = false;  // for the products over all steps
};
using AuthorGru = ScheduleNest (*)(KernelFrame& frame, const GruWay& way, const ir::Target& target);
ScheduleNest author_gru_training(KernelFrame& frame, const GruWay& way, const ir::Target& target);
ScheduleNest author_gru_grad(KernelFrame& frame, const GruWay& way, const ir::Target& target);

// What both ops have in common; each adds its schema, its check and its nest.
class GruOp : public Op {
 public:
  GruOp(OpSchema schema, AuthorGru author);
  Error explain(const Request& request, const Plan& plan, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const final;
};

// The buffers, extents and recurring pieces of both nests, and the loops that their schedule knows.
class GruNest {
 protected:
  using Expr = ir::Expr;
  using Buffer = ir::Buffer;
  using Index = std::vector<Expr>;

  GruNest(KernelFrame& frame, const GruWay& way, const ir::Target& target,
          const std::vector<ArgumentSchema>& arguments);
  // Batches to threads, products by schedule_matmul, columns to vectors; on a GPU all steps of a direction to one
  // launch.
  void schedule(ir::Schedule& s) const;

  // After all views are taken: extents, checked lengths.
  void start(const Buffer& all_states);

  // A product over all steps.
  void multiply(const Matmul& product) {
    if (way_.in_blocks)
      whole_in_blocks_.push_back(author_matmul_blocks(b, product, target_, way_.in_order));
    else
      whole_.push_back(author_matmul(b, product));
  }

  Buffer scratch(const char* name, std::vector<Expr> dims) { return b.alloc(name, sum, std::move(dims)); }
  // What a product over all steps reads. For matrix units it is rounded to the operands' dtype, as cuDNN's and
  // PyTorch's are.
  DType factor() const { return way_.matrix_units ? dtype : sum; }
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
  // All steps of a direction.
  struct Steps {
    ir::Loop loop = 0;                      // over them: one launch, where a device can do that
    std::vector<ir::Loop> products;         // of a step, by their rows
    std::vector<RecurrentLoops> in_blocks;  // or these
    ir::Loop outermost = 0;                 // R is packed before it, once: the loop over chunks where there is one
  };
  void each_chunk(const std::function<Steps(const Chunk&)>& run);  // one a thread, where that is worth it
  // A loop that passes over all rows of a state: its iterations go to threads where they are worth it.
  void shared_loop(const char* name, const Expr& extent, const std::function<void(Expr)>& body);
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
  void each_column(const std::function<void(Expr j)>& body) { element_loop("j", hidden, body); }
  // A loop over neighbours in memory that, but in blocks, holds no other.
  void element_loop(const char* name, const Expr& extent, const std::function<void(Expr)>& body) {
    elements_.push_back(b.loop(name, 0, extent, body));
  }
  // Of all sequences at a step, where they have no lengths of their own.
  Expr position(int d, const Expr& step) const {
    return options.reversed(d) ? ir::index_sub(ir::index_sub(steps, 1), step) : step;
  }
  Expr row_of(const Expr& p, const Expr& n) const { return ir::index_add(ir::index_mul(p, batch), n); }
  // Where column j of a gate lies in a row of gates side by side.
  Expr column(const Expr& gate, const Expr& j) const { return ir::index_add(ir::index_mul(gate, hidden), j); }

  // The input of an activation, clipped.
  Expr clipped(const Expr& x) const;

  ir::KernelBuilder& b;
  const GruOptions options;
  const int64_t threads;
  const GruWay way_;
  const ir::Target target_;
  std::vector<Buffer> in;  // by input; absent: not given
  DType dtype, sum;        // of the operands, of arithmetic
  Expr steps, batch, inputs, hidden, rows;
  Buffer lens_;  // checked lengths, [N]; absent without sequence_lens
  Buffer live_;  // [S * N]: whether the row is within its sequence
  Buffer bias_;  // Wb + Rb a gate, [D, 4, H]; linear before reset, slot 3 is Rbh and slot 2 Whb alone. Absent without B
  std::vector<Steps> all_steps_;  // by direction

 private:
  void persist(ir::Schedule& s) const;

  std::vector<ir::Loop> elements_, shared_, whole_;  // products over all steps, by their rows
  std::vector<MatmulBlocks> whole_in_blocks_;        // the same in blocks
};

}  // namespace gradloom
