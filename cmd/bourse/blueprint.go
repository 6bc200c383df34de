package main

import "github.com/spf13/cobra"

func newBlueprintCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "blueprint",
		Aliases: []string{"bp"},
		Short:   "Plan, follow and take back what runs on the member clusters",
		Long: "A blueprint says which artifacts run on the member clusters. Make, change and delete one with kubectl;\n" +
			"these commands say beforehand what it would come to, show how far it is, and take a version back.",
		Example: "  bourse blueprint plan -f shop.yaml\n  kubectl apply -f shop.yaml\n  bourse blueprint status shop --watch\n  bourse blueprint rollback shop",
	}
	command.AddCommand(newBlueprintPlanCommand(), newBlueprintStatusCommand(), newBlueprintRollbackCommand())
	return command
}
