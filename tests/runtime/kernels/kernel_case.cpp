#include "tests/runtime/kernels/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace zerocc {

TensorType Tensor::type() const { return {view.dtype, Dims(view.dims, view.dims + view.rank)}; }

HostTensor Tensor::host() const {
  int64_t bytes = byteSize(view.dtype), n = view.elements();
  std::string packed(static_cast<size_t>(n * bytes), '\0');
  int64_t index[kMaxRank] = {};
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < view.rank; ++d)
      offset += index[d] * view.strides[d];
    std::memcpy(packed.data() + i * bytes, data<char>() + offset * bytes, static_cast<size_t>(bytes));
    for (int d = view.rank - 1; d >= 0 && ++index[d] == view.dims[d]; --d)
      index[d] = 0;
  }
  return HostTensor::fromBytes(type(), packed);
}

static Tensor makeTensor(Random &random, DType dtype, const Dims &dims, Lie lie) {
  Tensor out;
  TensorView &view = out.view;
  view.dtype = dtype;
  view.rank = static_cast<int>(dims.size());
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  if (lie.permuted && random() % 3 != 0)
    std::shuffle(order.begin(), order.end(), random);
  int64_t elements = 1, offset = 0;
  for (int i = view.rank - 1; i >= 0; --i) {
    int axis = order[i];
    int64_t dim = view.dims[axis] = dims[axis];
    if (lie.broadcast && random() % 4 == 0)
      continue; // stride 0
    int64_t step = lie.spread && random() % 4 == 0 ? 2 : 1;
    view.strides[axis] = elements * step;
    elements = elements * dim * step;
    if (lie.reversed && dim > 0 && random() % 4 == 0) {
      offset += (dim - 1) * view.strides[axis];
      view.strides[axis] = -view.strides[axis];
    }
  }
  out.storage.reserve(1); // an empty tensor has an address too
  out.storage.resize(static_cast<size_t>(elements * byteSize(dtype)));
  view.data = out.storage.data() + (elements ? offset * byteSize(dtype) : 0);
  return out;
}

Tensor randomTensor(Random &random, DType dtype, Dims dims, Lie lie, double low, double high) {
  Tensor out = makeTensor(random, dtype, dims, lie);
  int64_t n = static_cast<int64_t>(out.storage.size()) / byteSize(dtype);
  TensorType flat = {dtype, {n}};
  HostTensor values;
  values.type = flat;
  std::uniform_real_distribution<double> draw(low, high);
  for (int64_t i = 0; i < n; ++i) {
    if (isFloat(dtype))
      values.reals.push_back(draw(random));
    else if (dtype == DType::boolean)
      values.integers.push_back(static_cast<int64_t>(random() % 2));
    else
      values.integers.push_back(static_cast<int64_t>(std::lround(draw(random))));
  }
  std::string bytes = values.toBytes();
  std::memcpy(out.storage.data(), bytes.data(), bytes.size());
  return out;
}

Tensor poisoned(DType dtype, Dims dims) {
  Random unused;
  Tensor out = makeTensor(unused, dtype, dims, kContiguous);
  std::fill(out.storage.begin(), out.storage.end(), static_cast<char>(0xa5));
  return out;
}

Dims randomDims(Random &random, int maxRank, bool withEmpty) {
  constexpr int64_t sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33, 70};
  while (true) {
    Dims dims;
    int64_t n = 1;
    for (int i = static_cast<int>(random() % static_cast<uint64_t>(maxRank + 1)); i > 0; --i) {
      dims.push_back(withEmpty && random() % 40 == 0 ? 0 : sizes[random() % std::size(sizes)]);
      n *= dims.back();
    }
    if (n <= 4000)
      return dims;
  }
}

Expected<KernelCall> prepareCall(OpKind op, const Attributes &attributes,
                                 const std::vector<const Tensor *> &inputs,
                                 const std::vector<const Tensor *> &results, const BucketLayout *bucket) {
  KernelCall call;
  call.op = op;
  call.attributes = attributes;
  call.bucket = bucket;
  for (const Tensor *tensor : inputs)
    call.inputs.push_back(tensor->view);
  for (const Tensor *tensor : results)
    call.results.push_back(tensor->view);
  // As many bytes as the compiler plans for such a node; calls run one after the other.
  Module module;
  Graph &graph = module.addGraph("test");
  llvm::SmallVector<Value *, 4> operands;
  llvm::SmallVector<TensorType, 3> types;
  for (const Tensor *tensor : inputs)
    operands.push_back(module.addInput("x" + std::to_string(operands.size()), tensor->type()));
  for (const Tensor *tensor : results)
    types.push_back(tensor->type());
  call.workspaceBytes = workspaceBytes(*graph.create(op, operands, types, attributes));
  static std::vector<double> workspace;
  workspace.resize(std::max(workspace.size(), static_cast<size_t>(call.workspaceBytes) / sizeof(double) + 1));
  call.workspace = workspace.data();
  ZEROCC_TRY(cpuKernel(op).prepare(call));
  return call;
}

std::vector<Tensor> runKernel(OpKind op, const Attributes &attributes,
                              const std::vector<const Tensor *> &inputs,
                              const std::vector<TensorType> &resultTypes) {
  std::vector<Tensor> results;
  std::vector<const Tensor *> pointers;
  for (const TensorType &type : resultTypes)
    results.push_back(poisoned(type.dtype, type.dims));
  for (const Tensor &result : results)
    pointers.push_back(&result);
  Expected<KernelCall> call = prepareCall(op, attributes, inputs, pointers);
  if (!call) {
    ADD_FAILURE() << call.error().text();
    return results;
  }
  if (call->workspaceBytes > 0)
    std::memset(call->workspace, 0xff, static_cast<size_t>(call->workspaceBytes)); // others use it in between
  call->run(*call);
  return results;
}

static std::string valueText(const HostTensor &tensor, int64_t i) { return std::to_string(tensor.at(i)); }

void expectNear(const HostTensor &actual, const HostTensor &expected, Tolerance tolerance,
                const std::string &what) {
  ASSERT_TRUE(actual.type == expected.type)
      << what << ": " << print(actual.type) << " for " << print(expected.type);
  for (int64_t i = 0, n = actual.type.elements(); i < n; ++i) {
    if (!isFloat(actual.type.dtype)) {
      ASSERT_EQ(actual.integers[i], expected.integers[i]) << what << ", element " << i;
      continue;
    }
    double a = actual.reals[i], e = expected.reals[i];
    bool isSame = a == e || (std::isnan(a) && std::isnan(e)) ||
                  std::fabs(a - e) <= tolerance.absolute + tolerance.relative * std::fabs(e) ||
                  static_cast<float>(e) == a; // f32 overflow
    ASSERT_TRUE(isSame) << what << ", element " << i << " is " << valueText(actual, i) << ", should be "
                        << valueText(expected, i);
  }
}

void expectAsInterpreted(OpKind op, const Attributes &attributes, const std::vector<const Tensor *> &inputs,
                         Tolerance tolerance) {
  Module module;
  Graph &graph = module.addGraph("test");
  llvm::SmallVector<Value *, 4> values;
  std::vector<TensorType> types;
  std::vector<HostTensor> hosts;
  std::string what = std::string(opText(op));
  for (const Tensor *tensor : inputs) {
    types.push_back(tensor->type());
    hosts.push_back(tensor->host());
    values.push_back(module.addInput("x" + std::to_string(values.size()), types.back()));
    what += " " + print(types.back());
  }
  Expected<ResultTypes> resultTypes = inferTypes({op, types, attributes});
  ASSERT_TRUE(resultTypes) << what << ": " << resultTypes.error().text();
  Node *node = graph.create(op, values, *resultTypes, attributes);
  std::vector<const HostTensor *> pointers;
  for (const HostTensor &host : hosts)
    pointers.push_back(&host);
  Expected<std::vector<HostTensor>> expected = interpretNode(*node, pointers);
  ASSERT_TRUE(expected) << what << ": " << expected.error().text();
  std::vector<Tensor> actual =
      runKernel(op, attributes, inputs, std::vector<TensorType>(resultTypes->begin(), resultTypes->end()));
  for (size_t i = 0; i < actual.size(); ++i)
    expectNear(actual[i].host(), (*expected)[i], tolerance, what + " result " + std::to_string(i));
}

} // namespace zerocc
