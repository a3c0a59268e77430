// The ops' schemas as C structs.
#include <algorithm>
#include <deque>
#include <tuple>

#include "runtime/c_abi/c_abi.h"
#include "runtime/memory/borrow_dlpack.h"
#include "support/lasting.h"

namespace gradloom::c_abi {
namespace {

constexpr const char* kinds[] = {"int", "float", "string", "ints", "floats", "strings"};  // gradloom_attribute_kind

// All structs, and the arrays that they point to: made once, and left where they are.
class Schemas {
 public:
  Schemas() {
    for (const Op* op : all_ops()) ops_.push_back(&add(op->schema()));
  }
  std::span<const gradloom_op_schema* const> ops() const { return ops_; }

 private:
  template <class T>
  std::vector<const T*>& list() {
    return std::get<std::deque<std::vector<const T*>>>(lists_).emplace_back();
  }

  const std::vector<const gradloom_argument_schema*>& add(const std::vector<ArgumentSchema>& arguments) {
    auto& all = list<gradloom_argument_schema>();
    for (const ArgumentSchema& a : arguments) {
      std::vector<DLDataType>& dtypes = dtypes_.emplace_back();
      for (const DType dtype : a.dtypes) dtypes.push_back(dlpack_dtype(dtype));
      all.push_back(
          &arguments_.emplace_back(gradloom_argument_schema{.size = sizeof(gradloom_argument_schema),
                                                            .name = a.name.c_str(),
                                                            .doc = a.doc.c_str(),
                                                            .type = a.type.c_str(),
                                                            .dtypes = dtypes.data(),
                                                            .dtype_count = static_cast<int32_t>(dtypes.size()),
                                                            .optional = a.optional,
                                                            .shape_like = a.shape_like,
                                                            .found_size = a.found_size}));
    }
    return all;
  }

  void set_default(gradloom_attribute_schema& to, const Attribute& value) {
    to.default_count = 1;
    if (const auto* one = std::get_if<int64_t>(&value)) to.default_ints = one;
    if (const auto* one = std::get_if<double>(&value)) to.default_floats = one;
    if (const auto* one = std::get_if<std::string>(&value)) to.default_strings = strings({*one});
    const auto list = [&](const auto* values, auto& place) {
      if (!values) return;
      place = values->data();
      to.default_count = static_cast<int32_t>(values->size());
    };
    list(std::get_if<std::vector<int64_t>>(&value), to.default_ints);
    list(std::get_if<std::vector<double>>(&value), to.default_floats);
    if (const auto* values = std::get_if<std::vector<std::string>>(&value)) {
      to.default_strings = strings(*values);
      to.default_count = static_cast<int32_t>(values->size());
    }
  }
  const char* const* strings(const std::vector<std::string>& values) {
    auto& all = list<char>();
    for (const std::string& value : values) all.push_back(texts_.emplace_back(value).c_str());
    return all.data();
  }

  const std::vector<const gradloom_attribute_schema*>& add(const std::vector<AttributeSchema>& attributes) {
    auto& all = list<gradloom_attribute_schema>();
    for (const AttributeSchema& a : attributes) {
      gradloom_attribute_schema& to = attributes_.emplace_back(gradloom_attribute_schema{
          .size = sizeof(gradloom_attribute_schema),
          .name = a.name.c_str(),
          .doc = a.doc.c_str(),
          .kind = static_cast<int32_t>(std::find(std::begin(kinds), std::end(kinds), a.type) - std::begin(kinds)),
          .default_count = -1});
      if (a.otherwise) set_default(to, *a.otherwise);
      all.push_back(&to);
    }
    return all;
  }

  const gradloom_op_schema& add(const OpSchema& schema) {
    const auto &inputs = add(schema.inputs), &outputs = add(schema.outputs);
    const auto& attributes = add(schema.attributes);
    return structs_.emplace_back(gradloom_op_schema{.size = sizeof(gradloom_op_schema),
                                                    .name = schema.name.c_str(),
                                                    .doc = schema.doc.c_str(),
                                                    .inputs = inputs.data(),
                                                    .outputs = outputs.data(),
                                                    .attributes = attributes.data(),
                                                    .input_count = static_cast<int32_t>(inputs.size()),
                                                    .output_count = static_cast<int32_t>(outputs.size()),
                                                    .attribute_count = static_cast<int32_t>(attributes.size()),
                                                    .on_host = schema.on_host});
  }

  std::deque<gradloom_argument_schema> arguments_;
  std::deque<gradloom_attribute_schema> attributes_;
  std::deque<gradloom_op_schema> structs_;
  std::deque<std::vector<DLDataType>> dtypes_;
  std::deque<std::string> texts_;
  std::tuple<std::deque<std::vector<const gradloom_argument_schema*>>,
             std::deque<std::vector<const gradloom_attribute_schema*>>, std::deque<std::vector<const char*>>>
      lists_;
  std::vector<const gradloom_op_schema*> ops_;
};

const Schemas& schemas() {
  static constinit Lasting<Schemas> all;
  return *all;
}

}  // namespace
}  // namespace gradloom::c_abi

using namespace gradloom;
using namespace gradloom::c_abi;

gradloom_status gradloom_ops(const gradloom_op_schema* const** ops, int32_t* count) {
  const char* const name = __func__;
  if (ops) *ops = nullptr;
  if (count) *count = 0;
  return entry([&] {
    require(ops, name, "ops");
    require(count, name, "count");
    *ops = schemas().ops().data();
    *count = static_cast<int32_t>(schemas().ops().size());
  });
}

gradloom_status gradloom_find_op(const char* op, const gradloom_op_schema** schema) {
  const char* const name = __func__;
  if (schema) *schema = nullptr;
  return entry([&] {
    require(op, name, "name");
    require(schema, name, "op");
    std::string known;
    for (const gradloom_op_schema* one : schemas().ops()) {
      if (std::string_view(one->name) == op) *schema = one;
      known += (known.empty() ? "" : ", ") + std::string(one->name);
    }
    if (!*schema) throw Error(ErrorCode::unsupported, fmt::format("there is no op \"{}\"; there are: {}", op, known));
  });
}
