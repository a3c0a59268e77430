// What the schemas say is so: types share a dtype, defaults are what an absent attribute means, sizes are found where a
// schema says so, and everything is documented.
#include <gtest/gtest.h>

#include <set>

#include "cli/cases.h"

namespace gradloom {
namespace {

// The golden cases that are no errors.
const std::vector<cases::Case>& calls() {
  static const std::vector<cases::Case> all = [] {
    std::vector<cases::Case> read;
    for (const auto& file : cases::find_cases({GRADLOOM_TEST_DIR "/golden"})) {
      cases::Case c = cases::read_case(file);
      if (!c.error && find_op(c.op)) read.push_back(std::move(c));
    }
    return read;
  }();
  return all;
}

bool same_plan(const Plan& a, const Plan& b) {
  bool same = a.key == b.key && a.params == b.params && a.views.size() == b.views.size();
  for (int v = 0; same && v < a.views.size(); ++v)
    same = a.views[v].dims == b.views[v].dims && a.views[v].strides == b.views[v].strides;
  return same;
}

TEST(Schema, ArgumentsOfATypeShareADtype) {
  std::set<std::string> refused;
  for (const cases::Case& c : calls()) {
    const OpSchema& schema = find_op(c.op)->schema();
    const Plan plan = cases::plan_of(c);
    std::map<std::string, DType> dtypes;
    const auto expect_same = [&](const ArgumentSchema& argument, DType dtype) {
      if (!argument.type.empty()) EXPECT_EQ(dtypes.emplace(argument.type, dtype).first->second, dtype) << c.name;
    };
    for (size_t i = 0; i < c.inputs.size(); ++i)
      if (c.inputs[i].present()) expect_same(schema.inputs[i], c.inputs[i].dtype());
    for (size_t o = 0; o < schema.outputs.size(); ++o)
      if (plan.outputs[static_cast<int>(o)].wanted)
        expect_same(schema.outputs[o], plan.outputs[static_cast<int>(o)].dtype);
    // One of them in another dtype is refused, where there are several.
    for (size_t i = 1; i < c.inputs.size(); ++i) {
      const ArgumentSchema& argument = schema.inputs[i];
      if (!c.inputs[i].present() || argument.type.empty() || argument.type != schema.inputs[0].type) continue;
      cases::Case mixed = c;
      const DType other = c.inputs[i].dtype() == DType::f64 ? DType::f16 : DType::f64;
      mixed.inputs[i] = Tensor::empty(other, c.inputs[i].dims());
      EXPECT_THROW(cases::plan_of(mixed), Error) << c.name << ": " << argument.name;
      refused.insert(c.op + "." + argument.name);
    }
  }
  EXPECT_GT(refused.size(), 10u);
}

TEST(Schema, DefaultsAreWhatAnAbsentAttributeMeans) {
  std::set<std::string> seen;
  for (const cases::Case& c : calls()) {
    const OpSchema& schema = find_op(c.op)->schema();
    for (const AttributeSchema& attribute : schema.attributes) {
      if (!attribute.otherwise) continue;
      cases::Case absent = c, given = c;
      absent.attributes.erase(attribute.name);
      given.attributes.insert_or_assign(attribute.name, *attribute.otherwise);
      Plan plan;
      try {
        plan = cases::plan_of(absent);
      } catch (const Error&) {  // the call's shapes need another value
        EXPECT_THROW(cases::plan_of(given), Error) << c.name << ": " << attribute.name;
        continue;
      }
      EXPECT_TRUE(same_plan(plan, cases::plan_of(given))) << c.name << ": " << attribute.name;
      seen.insert(c.op + "." + attribute.name);
    }
  }
  for (const Op* op : all_ops())
    for (const AttributeSchema& attribute : op->schema().attributes)
      if (attribute.otherwise) EXPECT_TRUE(seen.contains(op->schema().name + "." + attribute.name));
}

TEST(Schema, SizesAreFoundWhereItSaysSo) {
  for (const Op* op : all_ops())
    for (const ArgumentSchema& output : op->schema().outputs)
      EXPECT_EQ(output.found_size,
                op->schema().name == "BroadcastGradientArgs" || op->schema().name == "SparseGatherGrad")
          << op->schema().name;
}

TEST(Schema, IsDocumented) {
  for (const Op* op : all_ops()) {
    const OpSchema& schema = op->schema();
    EXPECT_FALSE(schema.doc.empty()) << schema.name;
    for (const auto* arguments : {&schema.inputs, &schema.outputs})
      for (const ArgumentSchema& argument : *arguments)
        EXPECT_FALSE(argument.doc.empty() || argument.dtypes.empty()) << schema.name << ": " << argument.name;
    for (const AttributeSchema& attribute : schema.attributes)
      EXPECT_FALSE(attribute.doc.empty()) << schema.name << ": " << attribute.name;
  }
}

}  // namespace
}  // namespace gradloom
