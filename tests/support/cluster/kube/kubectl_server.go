package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

// A command line of kubectl without its name, and what it reads.
type commandLine struct {
	Arguments []string `json:"arguments"`
	Input     string   `json:"input"`
}

// What the command has written, and the code that kubectl exits with.
type result struct {
	Code   int    `json:"code"`
	Output string `json:"output"`
	Error  string `json:"error"`
}

// A command that fails calls os.Exit; in here it panics with this.
type exit struct {
	message string
	code    int
}

// kubectlServer runs kubectl's commands in one process, one after the other: most of the cost of a short command is the
// program's start and its TLS handshake. It reads command lines from standard input and writes their results to standard
// output, as JSON.
func kubectlServer() {
	// The API server sees and keeps the program's name.
	os.Args[0] = "kubectl"
	kubectlutil.BehaviorOnFatal(func(message string, code int) { panic(exit{message, code}) })
	commandLines, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	// Nothing else may be between the results.
	os.Stdout = os.Stderr
	for {
		var asked commandLine
		if err := commandLines.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			fail("%v", err)
		}
		if err := results.Encode(run(asked)); err != nil {
			fail("%v", err)
		}
	}
}

func run(asked commandLine) (answer result) {
	input, writer, err := os.Pipe()
	if err != nil {
		fail("%v", err)
	}
	defer input.Close()
	go func() {
		// The rest of what a command does not read is lost.
		_, _ = writer.WriteString(asked.Input)
		writer.Close()
	}()
	// For `--filename -`, which takes this one.
	os.Stdin = input
	var output, errors bytes.Buffer
	defer func() {
		if ended := recover(); ended != nil {
			fatal, expected := ended.(exit)
			if !expected {
				panic(ended)
			}
			errors.WriteString(fatal.message)
			answer.Code = fatal.code
		}
		answer.Output, answer.Error = output.String(), errors.String()
	}()
	streams := genericiooptions.IOStreams{In: input, Out: &output, ErrOut: &errors}
	// The defaults of kubectl itself.
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50)
	command := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
		ConfigFlags: flags.WithWarningPrinter(streams),
		IOStreams:   streams,
	})
	command.SetArgs(asked.Arguments)
	command.SetOut(&output)
	command.SetErr(&errors)
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintf(&errors, "Error: %v\n", err)
		answer.Code = 1
	}
	return answer
}
