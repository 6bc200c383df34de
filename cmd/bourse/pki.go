package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/cmd/internal/pki"
)

func newPKICommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "pki",
		Short: "Make the exchange's certificates",
		Long: "Makes the exchange's certificate authority, the broker nodes' certificates, and kubeconfigs\n" +
			"whose client certificates carry a role.",
	}
	command.AddCommand(newPKIInitCommand(), newPKIIssueCommand(), newPKIKubeconfigCommand())
	return command
}

func newPKIInitCommand() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:     "init",
		Short:   "Make a certificate authority and a gossip key",
		Example: "  bourse pki init --dir ./pki",
		RunE: func(command *cobra.Command, _ []string) error {
			authority, err := pki.Init(dir)
			if err != nil {
				return err
			}
			command.Printf("authority   %s\ngossip key  %s\n", authority.CertFile(), authority.GossipKeyFile())
			return nil
		},
	}
	command.Flags().StringVar(&dir, "dir", "./pki", "directory of the authority")
	return command
}

func newPKIIssueCommand() *cobra.Command {
	var dir, node, out string
	var hosts []string
	command := &cobra.Command{
		Use:     "issue",
		Short:   "Issue the certificate of a broker node",
		Example: "  bourse pki issue --dir ./pki --node n1 --host 10.0.0.11 --host broker1.example.com --out ./n1",
		RunE: func(command *cobra.Command, _ []string) error {
			if node == "" {
				return usageError{fmt.Errorf("--node is empty: name the broker node")}
			}
			if out == "" {
				out = node
			}
			authority, err := pki.Open(dir)
			if err != nil {
				return err
			}
			pair, err := authority.Server(node, hosts)
			if err != nil {
				return err
			}
			if err := pair.Write(out); err != nil {
				return err
			}
			command.Printf("certificate  %s.crt\nkey          %s.key\n", out, out)
			return nil
		},
	}
	command.Flags().StringVar(&dir, "dir", "./pki", "directory of the authority")
	command.Flags().StringVar(&node, "node", "", "node id")
	command.Flags().StringSliceVar(&hosts, "host", nil, "addresses and names under which the node is reached (localhost is always included)")
	command.Flags().StringVar(&out, "out", "", "path without ending (default: the node id)")
	return command
}

func newPKIKubeconfigCommand() *cobra.Command {
	var dir, role, server, out string
	var namespaces []string
	command := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Issue a kubeconfig for a role",
		Example: "  bourse pki kubeconfig --for admin --server https://10.0.0.11:7440 --out admin.kubeconfig\n" +
			"  bourse pki kubeconfig --for requester:rome --namespace ml --server https://10.0.0.11:7440\n" +
			"  bourse pki kubeconfig --for agent:rome --server https://10.0.0.11:7440",
		RunE: func(command *cobra.Command, _ []string) error {
			identity, err := pki.ParseRole(role, namespaces)
			if err != nil {
				return usageError{fmt.Errorf("--for: %w", err)}
			}
			if server == "" {
				return usageError{fmt.Errorf("--server is empty: give the URL of a broker node, or of what forwards to all of them")}
			}
			authority, err := pki.Open(dir)
			if err != nil {
				return err
			}
			if out != "" {
				return authority.WriteKubeconfig(out, identity, server)
			}
			data, err := authority.Kubeconfig(identity, server)
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(data)
			return err
		},
	}
	command.Flags().StringVar(&dir, "dir", "./pki", "directory of the authority")
	command.Flags().StringVar(&role, "for", "", "admin, viewer, requester:<id>, provider:<id> or agent:<id>; several with commas")
	command.Flags().StringSliceVarP(&namespaces, "namespace", "n", nil, "namespaces of a requester or agent (default: its id)")
	command.Flags().StringVar(&server, "server", "", "URL of the exchange's API")
	command.Flags().StringVar(&out, "out", "", "file to write (default: standard output)")
	return command
}
