// Reads a compose file as Docker Compose does, by the schema of the Compose specification, and prints what it means.
package main

import (
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/cli"
)

func main() {
	text, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(text)
}

func read(file string) (string, error) {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithOsEnv, cli.WithName("fairlock"))
	if err != nil {
		return "", err
	}
	project, err := cli.ProjectFromOptions(options)
	if err != nil {
		return "", err
	}
	text, err := project.MarshalYAML()
	return string(text), err
}
