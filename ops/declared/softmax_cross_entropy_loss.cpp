#include "ops/declared/declared_op.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

using ir::AccumulateOp;
using ir::Expr;
using ir::MathOp;

// The labels where the nest stands.
class Labels {
 public:
  explicit Labels(DeclaredNest& n) : n_(n), classes_(n.reduced_extent()), ignored_(n.int_attribute("ignore_index")) {}
  Expr label() const { return ir::cast(DType::i64, n_["labels"]); }
  Expr valid() const { return (Expr(0) <= label()) & (label() < classes_); }
  Expr may_be() const { return ignored_ ? valid() | is_ignored() : valid(); }
  Expr counts() const { return ignored_ ? valid() & !is_ignored() : valid(); }
  // `value`, or 0 where the label is ignored.
  Expr unless_ignored(const Expr& value) const {
    return ignored_ ? ir::select(is_ignored(), n_.number(0), value) : value;
  }
  // 0 of what does not count.
  Expr weight() const {
    return n_("weights") ? n_.at("weights", label(), counts()) : ir::select(counts(), n_.number(1), n_.number(0));
  }

 private:
  Expr is_ignored() const { return label() == Expr(*ignored_); }

  DeclaredNest& n_;
  const Expr classes_;
  const std::optional<int64_t> ignored_;
};

void write(DeclaredNest& n) {
  const Labels labels(n);
  const std::string& reduction = n.choice("reduction");
  const auto loss = n.array("loss");
  n.each_kept([&] {
    const auto top = n.local("top"), total = n.local("total"), shift = n.local("shift"), picked = n.local("picked");
    n.put(picked, n.at("scores", labels.label(), labels.counts()));
    n.reduce(top, AccumulateOp::max, [&] { return n["scores"]; });
    n.reduce(total, AccumulateOp::add, [&] { return ir::math(MathOp::exp, n["scores"] - n[top]); });
    n.put(shift, ir::math(MathOp::log, n[total]));
    n.along([&] { n.put("log_prob", n["scores"] - n[top] - n[shift]); });
    n.b.check(labels.may_be(), n.kept_position(), "labels", [&] {
      const Expr value = labels.weight() * (n[shift] - (n[picked] - n[top]));
      n.put(loss, labels.unless_ignored(value));
    });
    n.known(top, [&] { return n.number(0); });
    n.known(total, [&] { return n.number(1); });
  });
  // At the scores log_prob, which give the same; what is ignored has a derivative of 0 at any.
  n.known(n("scores"), [&] { return labels.unless_ignored(n["log_prob"]); });
  if (reduction == "none") return n.each_kept([&] { n.put("output", n[loss]); });
  const auto sum = n.local("sum");
  n.reduce_kept(sum, AccumulateOp::add, [&] { return n[loss]; });
  if (reduction == "sum") return n.put("output", n[sum]);
  const auto weights = n.local("weight_sum");
  n.reduce_kept(weights, AccumulateOp::add, [&] { return labels.weight(); });
  const Expr none = n[weights] == n.number(0);
  n.put("output", ir::select(none, n.number(0), n[sum] / n[weights]));
}

}  // namespace

const DeclaredOps& softmax_cross_entropy_loss() {
  static constinit Lasting<const DeclaredOps> ops;
  return ops.get([] {
    const std::vector<DType> indices{DType::i32, DType::i64};
    return DeclaredOps(
        {.name = "SoftmaxCrossEntropyLoss",
         .doc = "The weighted negative logarithm of Softmax over dim 1 at each label: all of them, their sum or mean.",
         .inputs = {{.name = "scores", .doc = "[N, classes, ...]"},
                    {.name = "labels",
                     .doc = "[N, ...], each in [0, classes - 1] or ignore_index",
                     .over = Over::kept,
                     .type = "Tind",
                     .dtypes = indices},
                    {.name = "weights", .doc = "[classes]; 1 when absent", .over = Over::reduced, .optional = true}},
         .outputs = {{.name = "output",
                      .doc = "[]; with reduction none, labels' shape",
                      .over = Over::one,
                      .where = {"reduction", "none", Over::kept}},
                     {.name = "log_prob", .doc = "the logarithms of all probabilities", .optional = true}},
         .attributes = {{.name = "ignore_index", .type = "int", .doc = "a label that adds nothing"},
                        {.name = "reduction",
                         .type = "string",
                         .doc = "none, sum, or mean: the sum divided by that of the labels' weights, 0 where that is 0",
                         .otherwise = std::string("mean")}},
         .choices = {"mean", "none", "sum"},
         .reduced = Reduced::second,
         .indices = "labels",
         .write = write,
         .gradient = {.name = "SoftmaxCrossEntropyLossGrad",
                      .doc = "The gradient of SoftmaxCrossEntropyLoss, from its log_prob.",
                      .inputs = {{"dY", "d_output", "the gradient of output"},
                                 {"log_prob", "log_prob", "the second output of SoftmaxCrossEntropyLoss"},
                                 {"label", "labels", "its labels"},
                                 {"weight", "weights", "its weights"}},
                      .outputs = {{"d_logits", "d_scores", "the gradient of scores"}},
                      .attributes = {"ignore_index", "reduction"},
                      .inactive = {"top"}}});
  });
}

}  // namespace gradloom
