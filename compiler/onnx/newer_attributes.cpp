// Made from the schemas of ONNX 1.23, opsets 18 to 28, of the ops that import.

#include "compiler/onnx/newer_attributes.h"

#include "llvm/ADT/STLExtras.h"

namespace zerocc {
namespace {

struct NewerAttribute {
  const char *op, *name;
  int since;
};
constexpr NewerAttribute kNewer[] = {
    {"AffineGrid", "align_corners", 20},
    {"Attention", "is_causal", 23},
    {"Attention", "kv_num_heads", 23},
    {"Attention", "left_window_size", 25},
    {"Attention", "q_num_heads", 23},
    {"Attention", "qk_matmul_output_mode", 23},
    {"Attention", "right_window_size", 25},
    {"Attention", "scale", 23},
    {"Attention", "softcap", 23},
    {"Attention", "softmax_precision", 23},
    {"AveragePool", "dilations", 19},
    {"BitCast", "to", 26},
    {"Cast", "round_mode", 24},
    {"Cast", "saturate", 19},
    {"CastLike", "round_mode", 24},
    {"CastLike", "saturate", 19},
    {"CausalConvWithState", "activation", 27},
    {"CenterCropPad", "axes", 18},
    {"Col2Im", "dilations", 18},
    {"Col2Im", "pads", 18},
    {"Col2Im", "strides", 18},
    {"CumProd", "exclusive", 26},
    {"CumProd", "reverse", 26},
    {"DeformConv", "dilations", 19},
    {"DeformConv", "group", 19},
    {"DeformConv", "kernel_shape", 19},
    {"DeformConv", "offset_group", 19},
    {"DeformConv", "pads", 19},
    {"DeformConv", "strides", 19},
    {"DequantizeLinear", "block_size", 21},
    {"DequantizeLinear", "output_dtype", 23},
    {"Gelu", "approximate", 20},
    {"GroupNormalization", "epsilon", 18},
    {"GroupNormalization", "num_groups", 18},
    {"GroupNormalization", "stash_type", 21},
    {"LinearAttention", "chunk_size", 27},
    {"LinearAttention", "kv_num_heads", 27},
    {"LinearAttention", "q_num_heads", 27},
    {"LinearAttention", "scale", 27},
    {"LinearAttention", "update_rule", 27},
    {"LpPool", "ceil_mode", 18},
    {"LpPool", "dilations", 18},
    {"QuantizeLinear", "block_size", 21},
    {"QuantizeLinear", "output_dtype", 21},
    {"QuantizeLinear", "precision", 23},
    {"QuantizeLinear", "saturate", 19},
    {"RMSNormalization", "axis", 23},
    {"RMSNormalization", "epsilon", 23},
    {"RMSNormalization", "stash_type", 23},
    {"Range", "stash_type", 27},
    {"ReduceL1", "noop_with_empty_axes", 18},
    {"ReduceL2", "noop_with_empty_axes", 18},
    {"ReduceLogSum", "noop_with_empty_axes", 18},
    {"ReduceLogSumExp", "noop_with_empty_axes", 18},
    {"ReduceMax", "noop_with_empty_axes", 18},
    {"ReduceMean", "noop_with_empty_axes", 18},
    {"ReduceMin", "noop_with_empty_axes", 18},
    {"ReduceProd", "noop_with_empty_axes", 18},
    {"ReduceSumSquare", "noop_with_empty_axes", 18},
    {"Resize", "antialias", 18},
    {"Resize", "axes", 18},
    {"Resize", "keep_aspect_ratio_policy", 18},
    {"RotaryEmbedding", "interleaved", 23},
    {"RotaryEmbedding", "num_heads", 23},
    {"RotaryEmbedding", "rotary_embedding_dim", 23},
    {"SimplifiedLayerNormalization", "stash_type", 1}, // ONNX Runtime's, in the default domain
    {"SpaceToDepth", "mode", 28},
    {"Split", "num_outputs", 18},
    {"SwiGLU", "alpha", 28},
    {"Swish", "alpha", 24},
    {"TensorScatter", "axis", 24},
    {"TensorScatter", "mode", 24},
};

} // namespace

bool isNewerAttribute(const std::string &op, const std::string &attribute, int64_t version) {
  return llvm::any_of(kNewer, [&](const NewerAttribute &newer) {
    return op == newer.op && attribute == newer.name && version >= newer.since;
  });
}

} // namespace zerocc
