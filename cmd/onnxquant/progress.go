package main

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// maxBar is the largest width of the bar with its numbers.
const maxBar = 79

// progress is a progress bar with bytes, rate and remaining time. It draws nothing unless
// standard error is a terminal.
type progress struct {
	console *console
	silent  bool
	bar     *progressbar.ProgressBar // nil until the total is known
	staged  bool                     // a line of stage is there
}

func newProgress(c *console, quiet bool) *progress {
	return &progress{console: c, silent: quiet || !c.terminal}
}

func (p *progress) update(done, total int64) {
	if p.silent || total <= 0 {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.console.stderr),
			progressbar.OptionShowBytes(true),
			progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(16),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(100*time.Millisecond),
		)
	}
	if p.bar.GetMax64() != total { // some work is repeated
		p.bar.ChangeMax64(total)
	}
	p.bar.Set64(min(done, total))
}

// stage shows what is done next, where there are no bytes to count.
func (p *progress) stage(text string) {
	if !p.silent {
		fmt.Fprintf(p.console.stderr, "\r%-*s", maxBar, clip(printable(text), maxBar))
		p.staged = true
	}
}

// clear removes the bar from the line. The library's own method leaves it there on
// Windows.
func (p *progress) clear() {
	if p.bar != nil || p.staged {
		fmt.Fprintf(p.console.stderr, "\r%*s\r", maxBar, "")
		p.bar, p.staged = nil, false
	}
}
