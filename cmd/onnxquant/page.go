package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"

	"onnxquant/internal/cli"
	"onnxquant/internal/remote"
	"onnxquant/onnxq/report"
)

// checkPage returns an error if a page cannot or must not be written to path. "" stands for no page.
func checkPage(path string) error {
	return cli.CheckReplace(path, "is not a report; choose another file for the page", func() bool {
		f, err := os.Open(path)
		if err != nil {
			return true // the error comes when it is written
		}
		defer f.Close()
		head := make([]byte, len(report.Head))
		_, err = io.ReadFull(f, head)
		return err == nil && string(head) == report.Head
	})
}

// writePage writes the page to path, completely or not at all; "" stands for no page.
func writePage(path string, r *report.Report) error { return writePageOf(path, r.WriteHTML) }

// writePageOf writes a page, as writePage does.
func writePageOf(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	if err := checkPage(path); err != nil {
		return err // it may be a model that this command has just written
	}
	var page bytes.Buffer
	if err := write(&page); err != nil {
		return err
	}
	return cli.WriteFile(path, page.Bytes())
}

// noPage refuses an argument that is meant for a page, which a flag names.
func noPage(args []string, flag string) error {
	for _, path := range args {
		if ext := strings.ToLower(filepath.Ext(path)); ext == ".html" || ext == ".htm" {
			return cli.Usagef("%s is no model; for the page, write --%s %s", path, flag, path)
		}
	}
	return nil
}

// reportOptions returns the options that say where a report comes from.
func reportOptions(args []string, command ...string) report.Options {
	words := append([]string{"onnxquant"}, command...)
	for _, arg := range args {
		words = append(words, cli.ShellQuoted(remote.Plain(arg)))
	}
	return report.Options{Tool: "onnxquant " + buildVersion(), Command: strings.Join(words, " ")}
}
