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

// Everything besides dtypes and shapes that changes a kernel's code.
struct GruOptions {
  int directions = 1;
  bool reverse = false;  // direction 0 runs backward; direction 1 always does
  bool linear_before_reset = false;
  double clip = 0;                // 0: none
  Activation gate[2], hidden[2];  // f and g, by direction
  uint32_t given = 0;             // bit i: input i is present
  uint32_t wanted = 0;            // bit o: output o is requested
  bool accumulate = false;
  bool flat_x = false;  // X's rows have one stride: its view is [S * N, I]

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
// Loop extents. No step of an empty batch has work, nor has a sequence of no steps unless an input or a requested
// output has a batch dim but no steps dim: then both extents are 0, whatever the other dim is.
GruSizes looped_sizes(const GruSizes& sizes, const Request& request, const GruOptions& options, int last_state);
// Views of all inputs that are given, X flat where that is possible (`options.flat_x` is set).
void add_gru_views(const Request& request, int inputs, const GruSizes& loops, GruOptions& options, Plan& plan);
// Splits the last dim into [gates, H], so that accesses to different gates are known not to alias.
void split_gates(View& view, int64_t gates);
// `view`: the output's dims as the loops see them.
void add_gru_output(Plan& plan, const GruOptions& options, int output, DType dtype, const Dims& dims, const Dims& view);

// Completes a plan: its key, and the limits of the any-shape kernel.
void finish_gru_plan(Plan& plan, const GruOptions& options);

// A strategy's parameters.
struct GruWay {
  bool in_blocks = false;     // products by thread blocks of a GPU; else a nest that depends on the thread count alone
  bool in_order = true;       // in-order sums of the per-step products along k, and of dB
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

// The buffers, extents and shared parts of both nests, and the loops that their schedule needs.
class GruNest {
 protected:
  using Expr = ir::Expr;
  using Buffer = ir::Buffer;
  using Index = std::vector<Expr>;

  GruNest(KernelFrame& frame, const GruWay& way, const ir::Target& target,
          const std::vector<ArgumentSchema>& arguments);
  // Batches to threads, products by schedule_matmul, columns to vectors; on a GPU, one launch for all steps of a
  // direction.
  void schedule(ir::Schedule& s) const;

  // Sets extents and checks lengths; to be called after all views are taken.
  void start(const Buffer& all_states);

  // A product over all steps.
  void multiply(const Matmul& product) {
    if (way_.in_blocks)
      whole_in_blocks_.push_back(author_matmul_blocks(b, product, target_, way_.in_order));
    else
      whole_.push_back(author_matmul(b, product));
  }

  Buffer scratch(const char* name, std::vector<Expr> dims) { return b.alloc(name, sum, std::move(dims)); }
  // The operand dtype of the products over all steps. For matrix units operands are rounded to the op's dtype, as in
  // cuDNN and PyTorch.
  DType factor() const { return way_.matrix_units ? dtype : sum; }
  Expr value(const Buffer& buffer, Index index) const { return ir::cast(sum, ir::load(buffer, std::move(index))); }
  Expr number(double v) const { return ir::constant(sum, v); }
  // The value after a store and a load: f16 and bf16 round.
  Expr stored(const Expr& v) const { return ir::cast(sum, ir::cast(dtype, v)); }

  // X as rows [S * N, I] of factor(). With `masked`, rows beyond a sequence's end are 0.
  Buffer rows_of_x(bool masked);
  // Fills bias_.
  void add_biases();
  // to[d, m, n] = x[m] . W[d, n]: the input contribution to every gate, at all positions at once.
  Buffer input_products(const Buffer& x);
  // The activation input of gate g (0: z, 1: r, 2: c) at a row, without the recurrent contribution.
  Expr input_part(const Buffer& products, int d, int g, const Expr& row, const Expr& j) const;
  Expr recurrent_bias(int d, const Expr& j) const { return value(bias_, {d, 3, j}); }
  // The candidate's input, linear before reset: `recurrent` is h' Rh' without bias.
  Expr candidate_input(const Expr& from_input, const Expr& r, const Expr& recurrent, int d, const Expr& j) const;

  // A part of the batch, independent of the others in all steps.
  struct Chunk {
    Expr first, count;  // its batches
    Expr capacity;      // the largest count
  };
  // All steps of a direction.
  struct Steps {
    ir::Loop loop = 0;                      // over steps: one launch, where the device supports it
    std::vector<ir::Loop> products;         // the row loops of a step's products
    std::vector<RecurrentLoops> in_blocks;  // the same in blocks
    ir::Loop outermost = 0;                 // R is packed once, before it: the loop over chunks where there is one
  };
  void each_chunk(const std::function<Steps(const Chunk&)>& run);  // one per thread, where profitable
  bool is_shared() const;  // whether threads share what is done for all rows of a state
  // A loop over all rows of a state: parallelised where profitable.
  void shared_loop(const char* name, const Expr& extent, const std::function<void(Expr)>& body);
  // A loop along contiguous memory, to vectors.
  void to_vectors(ir::Schedule& s, ir::Loop loop) const;
  // One batch of a chunk at one step: batch n = first + i, position p, row = p * N + n.
  struct Place {
    Expr i, n, p, row;
  };
  using Visit = std::function<void(const Place&)>;
  // The position of sequence i of the whole batch at a step; in the padding beyond its end.
  Place place_of(int d, const Expr& i, const Expr& step) const;
  // `padded` where the sequence has ended: p is then the step itself, as padding lies at the end in both directions.
  void each_batch(int d, const Chunk& chunk, const Expr& step, const Visit& live, const Visit& padded);
  void at_batch(int d, const Expr& i, const Expr& n, const Expr& step, const Visit& live, const Visit& padded);
  void each_batch(const Chunk& chunk, const std::function<void(Expr i, Expr n)>& body);
  void each_column(const std::function<void(Expr j)>& body) { element_loop("j", hidden, body); }
  // A loop along contiguous memory, innermost except in blocks.
  void element_loop(const char* name, const Expr& extent, const std::function<void(Expr)>& body) {
    elements_.push_back(b.loop(name, 0, extent, body));
  }
  // The position of all sequences at a step, without per-sequence lengths.
  Expr position(int d, const Expr& step) const {
    return options.reversed(d) ? ir::index_sub(ir::index_sub(steps, 1), step) : step;
  }
  Expr row_of(const Expr& p, const Expr& n) const { return ir::index_add(ir::index_mul(p, batch), n); }
  // The index of column j of a gate in a row of concatenated gates.
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
  Buffer bias_;  // Wb + Rb per gate, [D, 4, H]; linear before reset, slot 3 is Rbh and slot 2 Wbh. Absent without B
  std::vector<Steps> all_steps_;  // by direction

 private:
  void persist(ir::Schedule& s) const;

  std::vector<ir::Loop> elements_, shared_, whole_;  // row loops of the products over all steps
  std::vector<MatmulBlocks> whole_in_blocks_;        // the same in blocks
};

}  // namespace gradloom
