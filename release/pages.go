package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

// writePages builds the command for this machine, and has it write its manual pages and the
// completions of shells into folder/man and folder/completions.
func (r *release) writePages(folder string) error {
	here := platform{os: runtime.GOOS, arch: runtime.GOARCH}
	if err := r.compile(here, folder); err != nil {
		return err
	}
	command := filepath.Join(folder, here.exe("onnxquant"))
	list, err := exec.Command(command, "help", "all").Output()
	if err != nil {
		return err
	}
	pages := map[string][]string{"man/onnxquant.1": {"help", "man"}}
	commands := regexp.MustCompile(`(?ms)^Commands:$(.*?)^$`).FindString(string(list))
	for _, c := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(commands, -1) {
		pages["man/onnxquant-"+c[1]+".1"] = []string{"help", "man", c[1]}
	}
	if len(pages) < 5 {
		return fmt.Errorf("onnxquant help all names no commands")
	}
	for _, shell := range shells {
		pages["completions/onnxquant."+shell] = []string{"completion", shell}
	}
	for name, args := range pages {
		text, err := exec.Command(command, args...).Output()
		if err != nil {
			return fmt.Errorf("onnxquant %v: %w", args, err)
		}
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	r.pages = folder
	return nil
}

// pageFiles returns what writePages wrote, sorted by name.
func (r *release) pageFiles() ([]file, error) {
	var files []file
	for _, pattern := range []string{"completions/*", "man/*"} {
		paths, err := filepath.Glob(filepath.Join(r.pages, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			files = append(files, file{filepath.ToSlash(path[len(r.pages)+1:]), data, false})
		}
	}
	return files, nil
}
