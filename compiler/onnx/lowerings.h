#pragma once

#include "compiler/onnx/lowering.h"

namespace zerocc {

// Every lowering in the table (lowering_table.cpp), grouped by the file it lives in.

// lower_math.cpp
Values lowerNeg(NodeLowering &n);
Values lowerAbs(NodeLowering &n);
Values lowerSign(NodeLowering &n);
Values lowerExp(NodeLowering &n);
Values lowerLog(NodeLowering &n);
Values lowerSqrt(NodeLowering &n);
Values lowerTanh(NodeLowering &n);
Values lowerSigmoid(NodeLowering &n);
Values lowerErf(NodeLowering &n);
Values lowerSin(NodeLowering &n);
Values lowerCos(NodeLowering &n);
Values lowerRelu(NodeLowering &n);
Values lowerFloor(NodeLowering &n);
Values lowerCeil(NodeLowering &n);
Values lowerNot(NodeLowering &n);
Values lowerReciprocal(NodeLowering &n);
Values lowerIsNan(NodeLowering &n);
Values lowerAdd(NodeLowering &n);
Values lowerSub(NodeLowering &n);
Values lowerMul(NodeLowering &n);
Values lowerDiv(NodeLowering &n);
Values lowerPow(NodeLowering &n);
Values lowerMod(NodeLowering &n);
Values lowerSum(NodeLowering &n);
Values lowerMax(NodeLowering &n);
Values lowerMin(NodeLowering &n);
Values lowerMean(NodeLowering &n);
Values lowerClip(NodeLowering &n);
Values lowerAnd(NodeLowering &n);
Values lowerOr(NodeLowering &n);
Values lowerXor(NodeLowering &n);
Values lowerEqual(NodeLowering &n);
Values lowerLess(NodeLowering &n);
Values lowerLessOrEqual(NodeLowering &n);
Values lowerGreater(NodeLowering &n);
Values lowerGreaterOrEqual(NodeLowering &n);
Values lowerWhere(NodeLowering &n);
Values lowerCast(NodeLowering &n);
Values lowerCastLike(NodeLowering &n);
Values lowerGelu(NodeLowering &n);
Values lowerLeakyRelu(NodeLowering &n);
Values lowerPRelu(NodeLowering &n);
Values lowerElu(NodeLowering &n);
Values lowerCelu(NodeLowering &n);
Values lowerSelu(NodeLowering &n);
Values lowerSoftplus(NodeLowering &n);
Values lowerMish(NodeLowering &n);
Values lowerSoftsign(NodeLowering &n);
Values lowerHardSigmoid(NodeLowering &n);
Values lowerHardSwish(NodeLowering &n);
Values lowerSwish(NodeLowering &n);

// lower_shape.cpp
Values lowerIdentity(NodeLowering &n);
Values lowerShape(NodeLowering &n);
Values lowerSize(NodeLowering &n);
Values lowerReshape(NodeLowering &n);
Values lowerTranspose(NodeLowering &n);
Values lowerSqueeze(NodeLowering &n);
Values lowerUnsqueeze(NodeLowering &n);
Values lowerFlatten(NodeLowering &n);
Values lowerExpand(NodeLowering &n);
Values lowerTile(NodeLowering &n);
Values lowerConcat(NodeLowering &n);
Values lowerSplit(NodeLowering &n);
Values lowerSlice(NodeLowering &n);
Values lowerPad(NodeLowering &n);
Values lowerGather(NodeLowering &n);
Values lowerGatherNd(NodeLowering &n);
Values lowerGatherElements(NodeLowering &n);
Values lowerConstantOfShape(NodeLowering &n);
Values lowerRange(NodeLowering &n);
Values lowerTrilu(NodeLowering &n);
Values lowerOneHot(NodeLowering &n);

// lower_reduce.cpp
Values lowerReduceSum(NodeLowering &n);
Values lowerReduceMean(NodeLowering &n);
Values lowerReduceMax(NodeLowering &n);
Values lowerReduceMin(NodeLowering &n);
Values lowerReduceProd(NodeLowering &n);
Values lowerReduceSumSquare(NodeLowering &n);
Values lowerReduceL1(NodeLowering &n);
Values lowerReduceL2(NodeLowering &n);
Values lowerReduceLogSum(NodeLowering &n);
Values lowerReduceLogSumExp(NodeLowering &n);

// lower_network.cpp
Values lowerMatMul(NodeLowering &n);
Values lowerGemm(NodeLowering &n);
Values lowerSoftmax(NodeLowering &n);
Values lowerLogSoftmax(NodeLowering &n);
Values lowerLayerNormalization(NodeLowering &n);
Values lowerRmsNormalization(NodeLowering &n);
Values lowerBatchNormalization(NodeLowering &n);
Values lowerDropout(NodeLowering &n);
Values lowerSoftmaxCrossEntropyLoss(NodeLowering &n);
Values lowerNegativeLogLikelihoodLoss(NodeLowering &n);

// lower_einsum.cpp
Values lowerEinsum(NodeLowering &n);

// lower_functions.cpp
Values lowerRound(NodeLowering &n);
Values lowerTan(NodeLowering &n);
Values lowerAsin(NodeLowering &n);
Values lowerAcos(NodeLowering &n);
Values lowerAtan(NodeLowering &n);
Values lowerSinh(NodeLowering &n);
Values lowerCosh(NodeLowering &n);
Values lowerAsinh(NodeLowering &n);
Values lowerAcosh(NodeLowering &n);
Values lowerAtanh(NodeLowering &n);
Values lowerBitwiseAnd(NodeLowering &n);
Values lowerBitwiseOr(NodeLowering &n);
Values lowerBitwiseXor(NodeLowering &n);
Values lowerBitwiseNot(NodeLowering &n);
Values lowerBitShift(NodeLowering &n);
Values lowerIsInf(NodeLowering &n);
Values lowerShrink(NodeLowering &n);
Values lowerThresholdedRelu(NodeLowering &n);
Values lowerEyeLike(NodeLowering &n);
Values lowerDepthToSpace(NodeLowering &n);
Values lowerSpaceToDepth(NodeLowering &n);
Values lowerCenterCropPad(NodeLowering &n);
Values lowerDet(NodeLowering &n);
Values lowerHannWindow(NodeLowering &n);
Values lowerHammingWindow(NodeLowering &n);
Values lowerBlackmanWindow(NodeLowering &n);

// lower_index.cpp
Values lowerArgMax(NodeLowering &n);
Values lowerArgMin(NodeLowering &n);
Values lowerCumProd(NodeLowering &n);
Values lowerTopK(NodeLowering &n);
Values lowerHardmax(NodeLowering &n);
Values lowerScatterElements(NodeLowering &n);
Values lowerReverseSequence(NodeLowering &n);
Values lowerNonZero(NodeLowering &n);
Values lowerCompress(NodeLowering &n);
Values lowerUnique(NodeLowering &n);
Values lowerBitCast(NodeLowering &n);
Values lowerCumSum(NodeLowering &n);
Values lowerScatterNd(NodeLowering &n);

// lower_convolution.cpp
Values lowerConv(NodeLowering &n);
Values lowerConvTranspose(NodeLowering &n);
Values lowerCol2Im(NodeLowering &n);
Values lowerMaxPool(NodeLowering &n);
Values lowerAveragePool(NodeLowering &n);
Values lowerLpPool(NodeLowering &n);
Values lowerGlobalAveragePool(NodeLowering &n);
Values lowerGlobalMaxPool(NodeLowering &n);
Values lowerGlobalLpPool(NodeLowering &n);
Values lowerMaxUnpool(NodeLowering &n);

// lower_normalization.cpp
Values lowerInstanceNormalization(NodeLowering &n);
Values lowerGroupNormalization(NodeLowering &n);
Values lowerLrn(NodeLowering &n);
Values lowerLpNormalization(NodeLowering &n);
Values lowerMeanVarianceNormalization(NodeLowering &n);

// lower_attention.cpp
Values lowerAttention(NodeLowering &n);
Values lowerRotaryEmbedding(NodeLowering &n);
Values lowerTensorScatter(NodeLowering &n);
Values lowerSwiGlu(NodeLowering &n);
Values lowerCausalConvWithState(NodeLowering &n);
Values lowerLinearAttention(NodeLowering &n);

// lower_recurrent.cpp
Values lowerRnn(NodeLowering &n);
Values lowerGru(NodeLowering &n);
Values lowerLstm(NodeLowering &n);

// lower_resize.cpp
Values lowerResize(NodeLowering &n);
Values lowerUpsample(NodeLowering &n);

// lower_sampling.cpp
Values lowerGridSample(NodeLowering &n);
Values lowerAffineGrid(NodeLowering &n);
Values lowerRoiAlign(NodeLowering &n);
Values lowerMaxRoiPool(NodeLowering &n);
Values lowerDeformConv(NodeLowering &n);

// lower_contrib.cpp
Values lowerBiasGelu(NodeLowering &n);
Values lowerContribGelu(NodeLowering &n);
Values lowerFastGelu(NodeLowering &n);
Values lowerQuickGelu(NodeLowering &n);
Values lowerBiasSplitGelu(NodeLowering &n);
Values lowerSkipLayerNormalization(NodeLowering &n);
Values lowerSkipSimplifiedLayerNormalization(NodeLowering &n);
Values lowerSimplifiedLayerNormalization(NodeLowering &n);
Values lowerEmbedLayerNormalization(NodeLowering &n);
Values lowerFusedMatMul(NodeLowering &n);
Values lowerFusedGemm(NodeLowering &n);
Values lowerFusedConv(NodeLowering &n);
Values lowerContribGroupNorm(NodeLowering &n);
Values lowerContribRotaryEmbedding(NodeLowering &n);
Values lowerContribAttention(NodeLowering &n);
Values lowerMultiHeadAttention(NodeLowering &n);
Values lowerGroupQueryAttention(NodeLowering &n);

// lower_signal.cpp
Values lowerDft(NodeLowering &n);
Values lowerStft(NodeLowering &n);
Values lowerMelWeightMatrix(NodeLowering &n);

// Shared by several files.
/// What a rotary embedding works on: x [B, H, S, D]; caches of half as many angles as elements are rotated, [S, half]
/// (with positions: [any, half]) or [B, S, half]; dims 0: all elements of a head.
struct Rotation {
  Value *x = nullptr, *cos = nullptr, *sin = nullptr, *positions = nullptr;
  bool interleaved = false;
  int64_t dims = 0;
};
Value *rotate(NodeLowering &n, const Rotation &rotation);
/// [rows, columns]: the dims before `axis`, and the others.
Value *flattenTo2D(NodeLowering &n, Value *x, int64_t axis);
/// Negative indices, which count from the end of `size`, made positive.
Value *fromFront(NodeLowering &n, Value *indices, int64_t size);
/// Undoes NodeLowering::moveLast.
Value *moveBack(NodeLowering &n, Value *x, int64_t axis);
Value *clip(NodeLowering &n, Value *x, Value *low, Value *high);

// lower_random.cpp
Values lowerRandomUniform(NodeLowering &n);
Values lowerRandomNormal(NodeLowering &n);
Values lowerBernoulli(NodeLowering &n);

// lower_quantize.cpp
Values lowerQuantizeLinear(NodeLowering &n);
Values lowerDequantizeLinear(NodeLowering &n);
Values lowerDynamicQuantizeLinear(NodeLowering &n);
Values lowerMatMulInteger(NodeLowering &n);
Values lowerQLinearMatMul(NodeLowering &n);
Values lowerConvInteger(NodeLowering &n);
Values lowerQLinearConv(NodeLowering &n);

// lower_training.cpp
Values lowerAdam(NodeLowering &n);
Values lowerMomentum(NodeLowering &n);
Values lowerAdagrad(NodeLowering &n);

} // namespace zerocc
