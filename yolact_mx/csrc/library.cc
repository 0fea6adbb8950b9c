#include "library.h"

#include <locale>
#include <sstream>

using mxnet::ext::MXReturnValue;

namespace yolact_mx {

namespace {

// Not by std::stod, which reads "0.5" by the user's language
bool parse(const std::string& text, double* value) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  return stream >> *value && stream.peek() == std::istringstream::traits_type::eof();
}

}  // namespace

MXReturnValue fail(const std::string& message) {
  MX_ERROR_MSG << message;
  return mxnet::ext::MX_FAIL;
}

MXReturnValue expect_numbers(const Attributes& attributes,
                             std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return fail(std::string(name) + " is missing");
    double value;
    if (!parse(found->second, &value)) {
      return fail(std::string(name) + ": expected a number, found " + found->second);
    }
  }
  return mxnet::ext::MX_SUCCESS;
}

double number(const Attributes& attributes, const char* name) {
  double value = 0;
  parse(attributes.at(name), &value);
  return value;
}

MXReturnValue infer_type(const Attributes&, std::vector<int>* inputs, std::vector<int>* outputs) {
  for (int& type : *inputs) {
    if (type == mxnet::ext::kUNSET) type = mxnet::ext::kFloat32;
    if (type != mxnet::ext::kFloat32) return fail("expected float32 arrays");
  }
  for (int& type : *outputs) type = mxnet::ext::kFloat32;
  return mxnet::ext::MX_SUCCESS;
}

}  // namespace yolact_mx

// MXNet calls this when it loads the library
MXReturnValue initialize(int version) {
  if (version / 100 == 109) return mxnet::ext::MX_SUCCESS;
  return yolact_mx::fail("built for MXNet 1.9, loaded by " + std::to_string(version));
}
