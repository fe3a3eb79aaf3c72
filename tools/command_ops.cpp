#include "compiler/onnx/importer.h"
#include "compiler/ops/ops.h"
#include "tools/command.h"

#include <iostream>

namespace zerocc {
namespace {

std::string versions(const ImportOp &op) {
  return std::to_string(op.since) + (op.until ? "-" + std::to_string(op.until) : "+");
}

void printMarkdown() {
  std::cout << "| ONNX operator | opset | limits |\n|---|---|---|\n";
  for (const ImportOp &op : importedOps())
    std::cout << "| " << (op.domain.empty() ? "" : op.domain + ".") << op.name << " | " << versions(op) << " | "
              << op.limits << " |\n";
  std::cout << "\n| core op | gradient | cpu kernel |\n|---|---|---|\n";
  for (int i = 0; i < kOpKinds; ++i) {
    const OpRow &row = opRow(static_cast<OpKind>(i));
    std::cout << "| " << row.text << " | " << (isDifferentiable(static_cast<OpKind>(i)) ? "yes" : "-") << " | "
              << row.kernels << " |\n";
  }
}

void printPlain() {
  std::cout << "ONNX operators that import (opset versions; limits):\n";
  for (const ImportOp &op : importedOps())
    std::cout << "  " << (op.domain.empty() ? "" : op.domain + ".") << op.name << "  " << versions(op)
              << (op.limits.empty() ? "" : "  (" + op.limits + ")") << "\n";
  std::cout << "\ncore ops (gradient rule; cpu kernel; cuda: not in this version):\n";
  for (int i = 0; i < kOpKinds; ++i) {
    const OpRow &row = opRow(static_cast<OpKind>(i));
    std::cout << "  " << row.text << "  " << (isDifferentiable(static_cast<OpKind>(i)) ? row.gradient : "-") << "  "
              << row.kernels << "\n";
  }
}

} // namespace

void addOpsCommand(CLI::App &app, Run &run) {
  auto markdown = std::make_shared<bool>(false);
  CLI::App *command = app.add_subcommand("ops", "list the supported operators");
  command->footer("Example:\n  zerocc ops --markdown");
  command->add_flag("--markdown", *markdown, "as Markdown tables");
  command->callback([markdown, &run] {
    run = [markdown] {
      *markdown ? printMarkdown() : printPlain();
      return kDone;
    };
  });
}

} // namespace zerocc
