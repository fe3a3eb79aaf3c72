#pragma once

#include "tests/e2e/cli.h"

#include <random>
#include <string>
#include <vector>

namespace zerocc::e2e {

/// Random small networks as ONNX text: dense layers of odd widths with shared weights, biases smaller than the ranks,
// and random numbers.
class RandomNetwork {
public:
  explicit RandomNetwork(unsigned seed) : random_(seed) {}

  int in = 0, out = 0; // set by text()

  std::string text() {
    int width = 1 + pick(7);
    in = width;
    std::string body, previous = "x", sharedWeight;
    int sharedWidth = 0;
    int layers = 1 + pick(4);
    for (int layer = 0; layer < layers; ++layer) {
      int next = pick(3) == 0 && sharedWidth == width ? width : 1 + pick(7);
      std::string weight = "w" + std::to_string(layer), value = "h" + std::to_string(layer);
      bool reuse = sharedWidth == width && next == width && pick(2) == 0;
      if (reuse) {
        weight = sharedWeight;
      } else {
        declare(weight, {width, next}, 1.0 / width);
        if (width == next) {
          sharedWeight = weight;
          sharedWidth = width;
        }
      }
      body += "  " + value + "m = MatMul(" + previous + ", " + weight + ")\n";
      std::string sum = value + "m";
      if (pick(3) != 0) {
        declare("b" + std::to_string(layer), {next}, 0.1);
        body += "  " + value + "b = Add(" + sum + ", b" + std::to_string(layer) + ")\n";
        sum = value + "b";
      }
      const char *activations[] = {"Tanh", "Relu", "Sigmoid"};
      body += "  " + value + " = " + std::string(activations[pick(3)]) + "(" + sum + ")\n";
      if (pick(3) == 0) { // noise, and which elements get it
        body += "  " + value + "z = RandomNormalLike<scale = 0.1>(" + value + ")\n  " + value + "p = Sigmoid(" + value +
                ")\n  " + value + "k = Bernoulli(" + value + "p)\n  " + value + "n = Mul(" + value + "z, " + value +
                "k)\n  " + value + "s = Add(" + value + ", " + value + "n)\n";
        value += "s";
      }
      previous = value;
      width = next;
    }
    out = width;
    body += "  y = Identity(" + previous + ")\n";
    return "<ir_version: 8, opset_import: [\"\" : 17]>\nrandom (float[batch, " + std::to_string(in) +
           "] x) => (float[batch, " + std::to_string(width) + "] y)\n<" + initializers_ + ">\n{\n" + body + "}\n";
  }

private:
  int pick(int n) { return static_cast<int>(random_() % n); }
  void declare(const std::string &name, std::vector<int> dims, double scale) {
    int elements = 1;
    std::string shape;
    for (int dim : dims) {
      shape += (shape.empty() ? "" : ",") + std::to_string(dim);
      elements *= dim;
    }
    std::string values;
    for (int i = 0; i < elements; ++i)
      values += (i ? "," : "") + std::to_string(scale * (static_cast<double>(random_() % 2001) / 1000.0 - 1.0) + 1e-3);
    initializers_ += (initializers_.empty() ? "" : ",\n") + ("float[" + shape + "] " + name + " = {" + values + "}");
  }
  std::mt19937 random_;
  std::string initializers_;
};

/// A .npy of float32 [rows, columns] with values in [-1, 1].
inline std::string arrayFile(const std::string &path, int rows, int columns, unsigned seed) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                       std::to_string(columns) + "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  std::mt19937 random(seed);
  for (int i = 0; i < rows * columns; ++i) {
    float value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
  }
  writeFile(path, bytes);
  return path;
}

} // namespace zerocc::e2e
