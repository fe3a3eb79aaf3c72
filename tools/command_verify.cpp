#include "runtime/plan/plan.h"
#include "runtime/plan/verify.h"
#include "tools/command.h"

#include <iostream>

namespace zerocc {

void addVerifyCommand(CLI::App &app, Run &run) {
  auto path = std::make_shared<std::string>();
  CLI::App *command = app.add_subcommand("verify", "prove a plan sound, from the file alone");
  command->footer("Example:\n  zerocc verify model.zplan");
  command->add_option("PLAN", *path, "plan to check")->required();
  command->callback([path, &run] {
    run = [path] {
      auto plan = loadPlan(*path);
      if (!plan)
        return refuse(plan.error());
      std::vector<Diagnostic> findings = verifyPlan(*plan);
      if (!findings.empty())
        return refuse(Error(std::move(findings)).in(*path));
      int64_t instructions = 0;
      for (const plan::Segment &segment : plan->segments())
        instructions += segment.instructions_size();
      std::cout << *path << ": sound (" << plan->segments_size() << " segments, " << instructions << " instructions, "
                << plan->buckets_size() << " buckets)\n";
      return static_cast<int>(kDone);
    };
  });
}

} // namespace zerocc
