// What the operators of this library share.
#ifndef YOLACT_MX_LIBRARY_H_
#define YOLACT_MX_LIBRARY_H_

#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "mxnet/lib_api.h"

namespace yolact_mx {

using Attributes = std::unordered_map<std::string, std::string>;

// Reports what is wrong with the use of an operator
mxnet::ext::MXReturnValue fail(const std::string& message);

// Fails unless all of these attributes are given as numbers
mxnet::ext::MXReturnValue expect_numbers(const Attributes& attributes,
                                         std::initializer_list<const char*> names);

// An attribute that expect_numbers has seen
double number(const Attributes& attributes, const char* name);

// The type inference of all operators: float32 in and out, anything else fails
mxnet::ext::MXReturnValue infer_type(const Attributes&, std::vector<int>* inputs,
                                     std::vector<int>* outputs);

}  // namespace yolact_mx

#endif  // YOLACT_MX_LIBRARY_H_
