package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Progress shows on one line of the terminal how far a command is. The line is never wider than the
// terminal. A terminal that cannot overwrite a line (TERM=dumb) gets a plain line without a bar now
// and then. A file or a pipe, such as the log of a build, gets a line rarely, and none for short jobs.
type Progress struct {
	console *Console
	silent  bool
	start   time.Time
	now     func() time.Time

	mu          sync.Mutex // the ticker draws too
	done, total int64
	text        string    // name of a stage without a size
	steps       string    // name of the steps, if the progress is not in bytes
	counted     bool      // steps are told by number
	drawn       int       // columns of the line on the screen
	last        time.Time // when it was drawn
	stop        chan struct{}
}

// Intervals between two drawings of the line on a terminal, and between two plain lines on a terminal
// or in a log. firstLog is the time before the first line of a log.
const (
	drawEvery = 100 * time.Millisecond
	lineEvery = 2 * time.Second
	firstLog  = 10 * time.Second
	logEvery  = 30 * time.Second
)

func NewProgress(c *Console, quiet bool) *Progress {
	p := &Progress{console: c, silent: quiet, now: time.Now}
	p.restart()
	return p
}

// restart begins to count the time. The first plain line is not for short commands.
func (p *Progress) restart() {
	p.start = p.now()
	switch {
	case !p.console.terminal:
		p.last = p.start.Add(firstLog - logEvery)
	case p.console.dumb:
		p.last = p.start
	}
}

// Begin shows that a command works, before it can tell how much is done.
func (p *Progress) Begin() {
	if p.silent {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = "working"
	p.restart()
	p.startTicker()
}

// Update is told how much of the work is done, in bytes.
func (p *Progress) Update(done, total int64) {
	if p.silent || total <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = min(done, total), total
	p.draw(false)
	p.startTicker()
}

// Step is told how many steps of a stage are done.
func (p *Progress) Step(stage string, done, total int) {
	if p.silent || total <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 || p.steps != stage {
		p.start = p.now()
	}
	p.steps, p.counted, p.done, p.total = stage, true, int64(min(done, total)), int64(total)
	p.draw(false)
}

// Share updates a stage whose unit means nothing to users; 0 of 0 if the progress is unknown.
func (p *Progress) Share(stage string, done, total int64) {
	if total <= 0 {
		p.stage(stage)
		return
	}
	if p.silent {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps, p.counted, p.done, p.total = stage, false, min(done, total), total
	p.draw(false)
}

// stage shows the name of a stage without a known size, and its duration.
func (p *Progress) stage(text string) {
	if p.silent {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	again := p.text == text && p.total == 0
	p.text, p.done, p.total, p.start = text, 0, 0, p.now()
	p.draw(!again)
	p.startTicker()
}

// startTicker draws the time also while nothing is reported, as during one large weight.
func (p *Progress) startTicker() {
	if p.stop == nil {
		p.stop = make(chan struct{})
		go p.tick(p.stop)
	}
}

// tick draws the line until stop is closed.
func (p *Progress) tick(stop chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			p.mu.Lock()
			if p.stop != nil {
				p.draw(false)
			}
			p.mu.Unlock()
		}
	}
}

// draw draws the line if the last time is long ago, or now.
func (p *Progress) draw(now bool) {
	every := drawEvery
	switch {
	case !p.console.terminal:
		every, now = logEvery, false
	case p.console.dumb:
		every = lineEvery
	}
	if t := p.now(); now || t.Sub(p.last) >= every {
		p.last = t
	} else {
		return
	}
	width := p.console.width() - 1 // a terminal may wrap behind the last column
	line := p.line(width)
	if p.console.dumb || !p.console.terminal {
		fmt.Fprintln(p.console.Stderr, line)
		return
	}
	n := utf8.RuneCountInString(line)
	fmt.Fprintf(p.console.Stderr, "\r%s%s", line, strings.Repeat(" ", max(min(p.drawn, width)-n, 0)))
	p.drawn = n
}

// line is the line for a terminal: share, time left, bytes, rate and a bar, as far as they fit.
func (p *Progress) line(width int) string {
	elapsed := p.now().Sub(p.start)
	if p.total == 0 {
		text := Printable(p.text)
		if elapsed >= time.Second {
			text += ", " + clock(elapsed)
		}
		return Clip(text, width)
	}
	parts := []string{fmt.Sprintf("%3d %%", 100*p.done/p.total)}
	if p.steps != "" {
		parts = []string{p.steps, fmt.Sprintf("%d %%", 100*p.done/p.total)}
		if p.counted {
			parts = append(parts, fmt.Sprintf("%d of %d", p.done, p.total))
		}
		if p.done > 0 && elapsed > time.Second {
			parts = append(parts, clock(time.Duration(float64(elapsed)*float64(p.total-p.done)/float64(p.done)))+" left")
		}
	} else if rate := float64(p.done) / elapsed.Seconds(); elapsed > time.Second && rate > 0 {
		left := time.Duration(float64(p.total-p.done) / rate * float64(time.Second))
		parts = append(parts, clock(left)+" left", ByteSize(p.done)+" of "+ByteSize(p.total), humanize.IBytes(uint64(rate))+"/s")
	} else {
		parts = append(parts, ByteSize(p.done)+" of "+ByteSize(p.total))
	}
	line := parts[0]
	overwritten := p.console.terminal && !p.console.dumb
	for _, part := range parts[1:] {
		if utf8.RuneCountInString(line)+2+len(part) <= width {
			line += ", " + part
		}
	}
	const least, most = 10, 30
	if room := min(width-utf8.RuneCountInString(line)-3, most); overwritten && room >= least {
		full := int(p.done * int64(room) / p.total)
		line = "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "] " + line
	}
	return Clip(line, width)
}

// clock writes a time as 1:05 or 2:03:04.
func clock(d time.Duration) string {
	s := int64(min(d, 1000*time.Hour).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// Calibrating is told how far calibration is. The conversion begins behind it, with a time of its own.
func (p *Progress) Calibrating(done, total int64) {
	p.Share("calibrate", done, total)
	if done == total {
		p.Clear()
		p.Begin()
	}
}

// Tuning is told how many steps of tuning are done. The conversion begins behind it, as behind calibration.
func (p *Progress) Tuning(done, total int) {
	p.Share("tune", int64(done), int64(total))
	if done == total {
		p.Clear()
		p.Begin()
	}
}

// Warn prints a warning above the line.
func (p *Progress) Warn(text string) {
	p.Clear()
	p.console.Warn(text)
	p.Begin()
}

// Clear removes the line.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		close(p.stop)
		p.stop = nil
	}
	if p.drawn > 0 {
		fmt.Fprintf(p.console.Stderr, "\r%*s\r", min(p.drawn, p.console.width()-1), "")
	}
	p.drawn, p.total, p.text, p.steps = 0, 0, "", ""
}
