// The one list of ONNX ops that can be imported. `zerocc ops` prints it.

#include "compiler/onnx/lowerings.h"

#include "compiler/onnx/structure.h"
#include "compiler/onnx/structured.h"

#include "llvm/ADT/StringRef.h"

namespace zerocc {

static constexpr int kNow = kNewestOpset;

static constexpr LoweringRow kRows[] = {
    {"", "Abs", 1, kNow, lowerAbs, ""},
    {"", "Acos", 7, kNow, lowerAcos, ""},
    {"", "Acosh", 9, kNow, lowerAcosh, ""},
    {"", "Add", 1, kNow, lowerAdd, ""},
    {"", "AffineGrid", 20, kNow, lowerAffineGrid, "known size"},
    {"", "And", 1, kNow, lowerAnd, ""},
    {"", "ArgMax", 1, kNow, lowerArgMax, ""},
    {"", "ArgMin", 1, kNow, lowerArgMin, ""},
    {"", "Asin", 7, kNow, lowerAsin, ""},
    {"", "Asinh", 9, kNow, lowerAsinh, ""},
    {"", "Atan", 7, kNow, lowerAtan, ""},
    {"", "Atanh", 9, kNow, lowerAtanh, ""},
    {"", "Attention", 23, kNow, lowerAttention, ""},
    {"", "AveragePool", 1, kNow, lowerAveragePool, "one to three spatial axes"},
    {"", "BatchNormalization", 1, kNow, lowerBatchNormalization, ""},
    {"", "Bernoulli", 15, kNow, lowerBernoulli, "no gradient; the seed is the plan's"},
    {"", "BitCast", 26, kNow, lowerBitCast, "known operand, equal sizes"},
    {"", "BitShift", 11, kNow, lowerBitShift, ""},
    {"", "BitwiseAnd", 18, kNow, lowerBitwiseAnd, ""},
    {"", "BitwiseNot", 18, kNow, lowerBitwiseNot, ""},
    {"", "BitwiseOr", 18, kNow, lowerBitwiseOr, ""},
    {"", "BitwiseXor", 18, kNow, lowerBitwiseXor, ""},
    {"", "BlackmanWindow", 17, kNow, lowerBlackmanWindow, "known size"},
    {"", "Cast", 1, kNow, lowerCast, "float, double, float16, bfloat16, int64, int32, int8, uint8, bool"},
    {"", "CastLike", 15, kNow, lowerCastLike, ""},
    {"", "CausalConvWithState", 27, kNow, lowerCausalConvWithState, ""},
    {"", "Ceil", 1, kNow, lowerCeil, ""},
    {"", "Celu", 12, kNow, lowerCelu, ""},
    {"", "CenterCropPad", 18, kNow, lowerCenterCropPad, "known shape"},
    {"", "Clip", 1, kNow, lowerClip, ""},
    {"", "Col2Im", 18, kNow, lowerCol2Im, "known shapes, one to three spatial axes"},
    {"", "Compress", 9, kNow, lowerCompress, "known condition"},
    {"", "Concat", 1, kNow, lowerConcat, ""},
    {"", "ConstantOfShape", 9, kNow, lowerConstantOfShape, "known shape"},
    {"", "Conv", 1, kNow, lowerConv, "one to three spatial axes"},
    {"", "ConvInteger", 10, kNow, lowerConvInteger, "no gradient; sums of up to 258 products in groups"},
    {"", "ConvTranspose", 1, kNow, lowerConvTranspose, "one to three spatial axes"},
    {"", "Cos", 7, kNow, lowerCos, ""},
    {"", "Cosh", 9, kNow, lowerCosh, ""},
    {"", "CumProd", 26, kNow, lowerCumProd, "known axis"},
    {"", "CumSum", 11, kNow, lowerCumSum, "known axis"},
    {"", "DFT", 17, kNow, lowerDft, "up to 4096 points"},
    {"", "DeformConv", 19, kNow, lowerDeformConv, "two spatial axes"},
    {"", "DequantizeLinear", 10, kNow, lowerDequantizeLinear, "integers of at least 8 bits"},
    {"", "DepthToSpace", 1, kNow, lowerDepthToSpace, ""},
    {"", "Det", 11, kNow, lowerDet, "up to 4 x 4"},
    {"", "Div", 1, kNow, lowerDiv, ""},
    {"", "Dropout", 1, kNow, lowerDropout, "known ratio and mode"},
    {"", "DynamicQuantizeLinear", 11, kNow, lowerDynamicQuantizeLinear, "no gradient to its operand"},
    {"", "Einsum", 12, kNow, lowerEinsum, ""},
    {"", "Elu", 1, kNow, lowerElu, ""},
    {"", "Equal", 1, kNow, lowerEqual, ""},
    {"", "Erf", 9, kNow, lowerErf, ""},
    {"", "Exp", 1, kNow, lowerExp, ""},
    {"", "Expand", 8, kNow, lowerExpand, "known shape"},
    {"", "EyeLike", 9, kNow, lowerEyeLike, ""},
    {"", "Flatten", 1, kNow, lowerFlatten, ""},
    {"", "Floor", 1, kNow, lowerFloor, ""},
    {"", "GRU", 1, kNow, lowerGru, "up to 4096 steps"},
    {"", "Gather", 1, kNow, lowerGather, ""},
    {"", "GatherElements", 11, kNow, lowerGatherElements, ""},
    {"", "GatherND", 11, kNow, lowerGatherNd, ""},
    {"", "Gelu", 20, kNow, lowerGelu, ""},
    {"", "Gemm", 1, kNow, lowerGemm, ""},
    {"", "GlobalAveragePool", 1, kNow, lowerGlobalAveragePool, ""},
    {"", "GlobalLpPool", 1, kNow, lowerGlobalLpPool, ""},
    {"", "GlobalMaxPool", 1, kNow, lowerGlobalMaxPool, ""},
    {"", "Greater", 1, kNow, lowerGreater, ""},
    {"", "GreaterOrEqual", 12, kNow, lowerGreaterOrEqual, ""},
    {"", "GridSample", 16, kNow, lowerGridSample, "one to three spatial axes"},
    {"", "GroupNormalization", 18, kNow, lowerGroupNormalization, ""},
    {"", "HammingWindow", 17, kNow, lowerHammingWindow, "known size"},
    {"", "HannWindow", 17, kNow, lowerHannWindow, "known size"},
    {"", "HardSigmoid", 1, kNow, lowerHardSigmoid, ""},
    {"", "HardSwish", 14, kNow, lowerHardSwish, ""},
    {"", "Hardmax", 1, kNow, lowerHardmax, ""},
    {"", "Identity", 1, kNow, lowerIdentity, ""},
    {"", "InstanceNormalization", 1, kNow, lowerInstanceNormalization, ""},
    {"", "IsInf", 10, kNow, lowerIsInf, ""},
    {"", "IsNaN", 9, kNow, lowerIsNan, ""},
    {"", "LRN", 1, kNow, lowerLrn, ""},
    {"", "LSTM", 1, kNow, lowerLstm, "up to 4096 steps"},
    {"", "LayerNormalization", 17, kNow, lowerLayerNormalization, ""},
    {"", "LeakyRelu", 1, kNow, lowerLeakyRelu, ""},
    {"", "Less", 1, kNow, lowerLess, ""},
    {"", "LessOrEqual", 12, kNow, lowerLessOrEqual, ""},
    {"", "LinearAttention", 27, kNow, lowerLinearAttention, ""},
    {"", "Log", 1, kNow, lowerLog, ""},
    {"", "LogSoftmax", 1, kNow, lowerLogSoftmax, ""},
    {"", "LpNormalization", 1, kNow, lowerLpNormalization, ""},
    {"", "LpPool", 1, kNow, lowerLpPool, "one to three spatial axes"},
    {"", "MatMul", 1, kNow, lowerMatMul, "float operands"},
    {"", "MatMulInteger", 10, kNow, lowerMatMulInteger, "no gradient"},
    {"", "Max", 1, kNow, lowerMax, ""},
    {"", "MaxPool", 1, kNow, lowerMaxPool, "one to three spatial axes"},
    {"", "MaxRoiPool", 1, kNow, lowerMaxRoiPool, "two spatial axes"},
    {"", "MaxUnpool", 9, kNow, lowerMaxUnpool, "known shape"},
    {"", "Mean", 1, kNow, lowerMean, ""},
    {"", "MeanVarianceNormalization", 9, kNow, lowerMeanVarianceNormalization, ""},
    {"", "MelWeightMatrix", 17, kNow, lowerMelWeightMatrix, "known operands"},
    {"", "Min", 1, kNow, lowerMin, ""},
    {"", "Mish", 18, kNow, lowerMish, ""},
    {"", "Mod", 10, kNow, lowerMod, ""},
    {"", "Mul", 1, kNow, lowerMul, ""},
    {"", "Neg", 1, kNow, lowerNeg, ""},
    {"", "NegativeLogLikelihoodLoss", 12, kNow, lowerNegativeLogLikelihoodLoss, ""},
    {"", "NonZero", 9, kNow, lowerNonZero, "known, or rows that are added back by index"},
    {"", "Not", 1, kNow, lowerNot, ""},
    {"", "OneHot", 9, kNow, lowerOneHot, "known depth"},
    {"", "Or", 1, kNow, lowerOr, ""},
    {"", "PRelu", 1, kNow, lowerPRelu, ""},
    {"", "Pad", 1, kNow, lowerPad, "known pads"},
    {"", "Pow", 1, kNow, lowerPow, ""},
    {"", "QLinearConv", 10, kNow, lowerQLinearConv, "no gradient; sums of up to 258 products in groups"},
    {"", "QLinearMatMul", 10, kNow, lowerQLinearMatMul, "no gradient"},
    {"", "QuantizeLinear", 10, kNow, lowerQuantizeLinear,
     "integers of 8 and 16 bits; no gradient to its operand"},
    {"", "RMSNormalization", 23, kNow, lowerRmsNormalization, ""},
    {"", "RNN", 1, kNow, lowerRnn, "up to 4096 steps"},
    {"", "RandomNormal", 1, kNow, lowerRandomNormal, "the seed is the plan's"},
    {"", "RandomNormalLike", 1, kNow, lowerRandomNormal, "the seed is the plan's"},
    {"", "RandomUniform", 1, kNow, lowerRandomUniform, "the seed is the plan's"},
    {"", "RandomUniformLike", 1, kNow, lowerRandomUniform, "the seed is the plan's"},
    {"", "Range", 11, kNow, lowerRange, "known operands"},
    {"", "Reciprocal", 1, kNow, lowerReciprocal, ""},
    {"", "ReduceL1", 1, kNow, lowerReduceL1, ""},
    {"", "ReduceL2", 1, kNow, lowerReduceL2, ""},
    {"", "ReduceLogSum", 1, kNow, lowerReduceLogSum, ""},
    {"", "ReduceLogSumExp", 1, kNow, lowerReduceLogSumExp, ""},
    {"", "ReduceMax", 1, kNow, lowerReduceMax, ""},
    {"", "ReduceMean", 1, kNow, lowerReduceMean, ""},
    {"", "ReduceMin", 1, kNow, lowerReduceMin, ""},
    {"", "ReduceProd", 1, kNow, lowerReduceProd, ""},
    {"", "ReduceSum", 1, kNow, lowerReduceSum, ""},
    {"", "ReduceSumSquare", 1, kNow, lowerReduceSumSquare, ""},
    {"", "Relu", 1, kNow, lowerRelu, ""},
    {"", "Reshape", 1, kNow, lowerReshape, "known shape"},
    {"", "Resize", 10, kNow, lowerResize, "known scales or sizes"},
    {"", "ReverseSequence", 10, kNow, lowerReverseSequence, ""},
    {"", "RoiAlign", 10, kNow, lowerRoiAlign, "sampling_ratio 0 with known regions only"},
    {"", "RotaryEmbedding", 23, kNow, lowerRotaryEmbedding, ""},
    {"", "Round", 11, kNow, lowerRound, ""},
    {"", "Scatter", 9, kNow, lowerScatterElements, ""},
    {"", "ScatterElements", 11, kNow, lowerScatterElements, ""},
    {"", "ScatterND", 11, kNow, lowerScatterNd, ""},
    {"", "STFT", 17, kNow, lowerStft, "known step and length, up to 4096 points"},
    {"", "Selu", 1, kNow, lowerSelu, ""},
    {"", "Shape", 1, kNow, lowerShape, ""},
    {"", "Shrink", 9, kNow, lowerShrink, ""},
    {"", "Sigmoid", 1, kNow, lowerSigmoid, ""},
    {"", "Sign", 9, kNow, lowerSign, ""},
    {"", "SimplifiedLayerNormalization", 1, kNow, lowerSimplifiedLayerNormalization, "last axis"},
    {"", "Sin", 7, kNow, lowerSin, ""},
    {"", "Sinh", 9, kNow, lowerSinh, ""},
    {"", "Size", 1, kNow, lowerSize, ""},
    {"", "Slice", 1, kNow, lowerSlice, "known bounds"},
    {"", "Softmax", 1, kNow, lowerSoftmax, ""},
    {"", "SoftmaxCrossEntropyLoss", 12, kNow, lowerSoftmaxCrossEntropyLoss, ""},
    {"", "Softplus", 1, kNow, lowerSoftplus, ""},
    {"", "Softsign", 1, kNow, lowerSoftsign, ""},
    {"", "SpaceToDepth", 1, kNow, lowerSpaceToDepth, ""},
    {"", "Split", 1, kNow, lowerSplit, ""},
    {"", "Sqrt", 1, kNow, lowerSqrt, ""},
    {"", "Squeeze", 1, kNow, lowerSqueeze, ""},
    {"", "Sub", 1, kNow, lowerSub, ""},
    {"", "Sum", 1, kNow, lowerSum, ""},
    {"", "SwiGLU", 28, kNow, lowerSwiGlu, ""},
    {"", "Swish", 24, kNow, lowerSwish, ""},
    {"", "Tan", 7, kNow, lowerTan, ""},
    {"", "Tanh", 1, kNow, lowerTanh, ""},
    {"", "TensorScatter", 24, kNow, lowerTensorScatter, ""},
    {"", "ThresholdedRelu", 1, kNow, lowerThresholdedRelu, ""},
    {"", "Tile", 6, kNow, lowerTile, "known repeats"},
    {"", "TopK", 1, kNow, lowerTopK, "known k"},
    {"", "Transpose", 1, kNow, lowerTranspose, ""},
    {"", "Trilu", 14, kNow, lowerTrilu, "known diagonal"},
    {"", "Unique", 11, kNow, lowerUnique, "known operand"},
    {"", "Unsqueeze", 1, kNow, lowerUnsqueeze, ""},
    {"", "Upsample", 1, kNow, lowerUpsample, "known scales"},
    {"", "Where", 9, kNow, lowerWhere, ""},
    {"", "Xor", 1, kNow, lowerXor, ""},
    {"com.microsoft", "Attention", 1, kNow, lowerContribAttention, "without a cache"},
    {"com.microsoft", "BiasGelu", 1, kNow, lowerBiasGelu, ""},
    {"com.microsoft", "BiasSplitGelu", 1, kNow, lowerBiasSplitGelu, ""},
    {"com.microsoft", "EmbedLayerNormalization", 1, kNow, lowerEmbedLayerNormalization, ""},
    {"com.microsoft", "FastGelu", 1, kNow, lowerFastGelu, ""},
    {"com.microsoft", "FusedConv", 1, kNow, lowerFusedConv, ""},
    {"com.microsoft", "FusedGemm", 1, kNow, lowerFusedGemm, ""},
    {"com.microsoft", "FusedMatMul", 1, kNow, lowerFusedMatMul, ""},
    {"com.microsoft", "Gelu", 1, kNow, lowerContribGelu, ""},
    {"com.microsoft", "GroupNorm", 1, kNow, lowerContribGroupNorm, ""},
    {"com.microsoft", "GroupQueryAttention", 1, kNow, lowerGroupQueryAttention, "without a cache"},
    {"com.microsoft", "LayerNormalization", 1, kNow, lowerLayerNormalization, ""},
    {"com.microsoft", "MultiHeadAttention", 1, kNow, lowerMultiHeadAttention, "without a cache"},
    {"com.microsoft", "QuickGelu", 1, kNow, lowerQuickGelu, ""},
    {"com.microsoft", "RotaryEmbedding", 1, kNow, lowerContribRotaryEmbedding, ""},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, kNow, lowerSimplifiedLayerNormalization,
     "last axis"},
    {"com.microsoft", "SkipLayerNormalization", 1, kNow, lowerSkipLayerNormalization, ""},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, kNow, lowerSkipSimplifiedLayerNormalization, ""},
    {"ai.onnx.preview.training", "Adagrad", 1, kNow, lowerAdagrad, ""},
    {"ai.onnx.preview.training", "Adam", 1, kNow, lowerAdam, ""},
    {"ai.onnx.preview.training", "Momentum", 1, kNow, lowerMomentum, ""},
};

llvm::ArrayRef<LoweringRow> loweringTable() { return kRows; }

namespace {

struct Remedy {
  const char *op, *text;
};
constexpr Remedy kRemedies[] = {
    {"Multinomial", "export in eval mode, without random layers"},
    {"If",
     "bind the dimensions its condition depends on with --dim, or export without data-dependent branches"},
};

} // namespace

std::string remedyFor(const FlatNode &node) {
  if (node.domain == "com.microsoft")
    return llvm::StringRef(node.op).contains("NBits") || llvm::StringRef(node.op).startswith("Q")
               ? "its weights are quantised: train from the float export of the model"
               : "this op is made by ONNX Runtime's optimizer: train from the model before it was optimized";
  if (!node.domain.empty())
    return "export the model without ops of domain \"" + node.domain + "\"";
  for (const Remedy &remedy : kRemedies)
    if (node.op == remedy.op)
      return remedy.text;
  return "`zerocc ops` lists the supported ops";
}

std::string importRemedy(const std::string &op) {
  FlatNode node;
  const size_t dot = op.rfind('.');
  if (dot != std::string::npos)
    node.domain = op.substr(0, dot);
  node.op = op.substr(dot == std::string::npos ? 0 : dot + 1);
  return remedyFor(node);
}

std::vector<ImportOp> importedOps() {
  std::vector<ImportOp> ops;
  for (const LoweringRow &row : kRows)
    ops.push_back({row.domain, row.op, row.since, row.until, row.limits});
  for (const StructuredRow &row : structuredTable())
    ops.push_back({row.domain, row.op, row.since, row.until, row.limits});
  ops.push_back({"", "Constant", 1, kNow, "tensors and numbers"});
  ops.push_back(
      {"ai.onnx.preview.training", "Gradient", 1, kNow, "first order; named tensors are no constants"});
  llvm::sort(ops, [](const ImportOp &a, const ImportOp &b) {
    return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
  });
  return ops;
}

} // namespace zerocc
