#include "compiler/ir/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace zerocc {
namespace {

std::string rounded(DType dtype, double value) { return decodeElement(dtype, encodeElement(dtype, value)); }

TEST(Text, elementsAreTheShortestTextThatReadsBack) {
  EXPECT_EQ(rounded(DType::f32, 0.1), "0.1");
  EXPECT_EQ(rounded(DType::f64, 0.1), "0.1");
  EXPECT_EQ(rounded(DType::f32, 1e20), "1e+20");
  EXPECT_EQ(rounded(DType::f32, -0.0), "-0.0");
  EXPECT_EQ(rounded(DType::i64, -3), "-3");
  EXPECT_EQ(rounded(DType::boolean, 2), "true");
}

TEST(Text, halvesRoundToNearestEven) {
  EXPECT_EQ(rounded(DType::f16, 2049), "2048.0");
  EXPECT_EQ(rounded(DType::f16, 2051), "2052.0");
  EXPECT_EQ(rounded(DType::f16, 65519.99), "65504.0");
  EXPECT_EQ(rounded(DType::f16, 65520), "inf");
  EXPECT_EQ(rounded(DType::f16, -1e9), "-inf");
  EXPECT_EQ(rounded(DType::f16, std::ldexp(1.0, -24)), "5.9604645e-08");
  EXPECT_EQ(rounded(DType::f16, std::ldexp(1.0, -25)), "0.0");
  EXPECT_EQ(rounded(DType::f16, std::ldexp(1.5, -25)), "5.9604645e-08");
  EXPECT_EQ(rounded(DType::bf16, 257), "256.0");
  EXPECT_EQ(rounded(DType::bf16, 259), "260.0");
  EXPECT_EQ(rounded(DType::bf16, std::numeric_limits<float>::max()), "inf");
  EXPECT_EQ(rounded(DType::bf16, std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Text, everyHalfReadsBack) {
  for (DType dtype : {DType::f16, DType::bf16})
    for (int bits = 0; bits < 0x10000; ++bits) {
      const std::string bytes{static_cast<char>(bits), static_cast<char>(bits >> 8)};
      const std::string text = decodeElement(dtype, bytes);
      if (text == "nan")
        continue;
      EXPECT_EQ(encodeElement(dtype, std::strtod(text.c_str(), nullptr)), bytes) << text;
    }
}

TEST(Text, namesAreQuotedOnlyWhereTheyMustBe) {
  EXPECT_EQ(printName('@', "h.0/attn:0#x~-_"), "@h.0/attn:0#x~-_");
  EXPECT_EQ(printName('@', "a b"), "@\"a b\"");
  EXPECT_EQ(printName('@', "a+b"), "@\"a+b\"");
  EXPECT_EQ(printName('@', ""), "@\"\"");
  EXPECT_EQ(printName('@', "12"), "@12");
  EXPECT_EQ(printName('%', "12"), "%\"12\"");
  EXPECT_EQ(printName('%', "12a"), "%12a");
  EXPECT_EQ(quote("\"\\\n\x02"), "\"\\\"\\\\\\n\\x02\"");
}

} // namespace
} // namespace zerocc
