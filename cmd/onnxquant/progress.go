package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// progress says on one line of the terminal how far a command is. The line is never wider than
// the terminal. A terminal that cannot overwrite a line (TERM=dumb) gets a plain line without a bar now
// and then; a file or a pipe, such as the log of a build, gets one rarely, and none of what is short.
type progress struct {
	console *console
	silent  bool
	start   time.Time
	now     func() time.Time

	mu          sync.Mutex // a ticker draws, too
	done, total int64
	text        string    // of the stage, if there are no bytes to count
	steps       string    // what is done, if that is not bytes
	counted     bool      // steps are told by number
	drawn       int       // columns of the line on the screen
	last        time.Time // when it was drawn
	stop        chan struct{}
}

// How often the line is drawn, and a plain line printed: on a terminal, or in a log, where the
// first one comes after firstLog.
const (
	drawEvery = 100 * time.Millisecond
	lineEvery = 2 * time.Second
	firstLog  = 10 * time.Second
	logEvery  = 30 * time.Second
)

func newProgress(c *console, quiet bool) *progress {
	p := &progress{console: c, silent: quiet, now: time.Now}
	p.restart()
	return p
}

// restart begins to count the time. The first plain line is not for short commands.
func (p *progress) restart() {
	p.start = p.now()
	switch {
	case !p.console.terminal:
		p.last = p.start.Add(firstLog - logEvery)
	case p.console.dumb:
		p.last = p.start
	}
}

// begin shows that a command works, before it can tell how much is done.
func (p *progress) begin() {
	if p.silent {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = "working"
	p.restart()
	p.startTicker()
}

// update is told how much of the work is done, in bytes.
func (p *progress) update(done, total int64) {
	if p.silent || total <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = min(done, total), total
	p.draw(false)
	p.startTicker()
}

// step is told how many steps of a stage are done.
func (p *progress) step(stage string, done, total int) {
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

// share is told how much of a stage is done, in a unit that says nothing to users; 0 of 0 where
// that is not known.
func (p *progress) share(stage string, done, total int64) {
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

// stage shows what is done next, where there are no bytes to count, and for how long.
func (p *progress) stage(text string) {
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
func (p *progress) startTicker() {
	if p.stop == nil {
		p.stop = make(chan struct{})
		go p.tick(p.stop)
	}
}

// tick draws the line until stop is closed.
func (p *progress) tick(stop chan struct{}) {
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
func (p *progress) draw(now bool) {
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
		fmt.Fprintln(p.console.stderr, line)
		return
	}
	n := utf8.RuneCountInString(line)
	fmt.Fprintf(p.console.stderr, "\r%s%s", line, strings.Repeat(" ", max(min(p.drawn, width)-n, 0)))
	p.drawn = n
}

// line is the line for a terminal: share, time left, bytes, rate and a bar, as far as they fit.
func (p *progress) line(width int) string {
	elapsed := p.now().Sub(p.start)
	if p.total == 0 {
		text := printable(p.text)
		if elapsed >= time.Second {
			text += ", " + clock(elapsed)
		}
		return clip(text, width)
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
		parts = append(parts, clock(left)+" left", byteSize(p.done)+" of "+byteSize(p.total), humanize.IBytes(uint64(rate))+"/s")
	} else {
		parts = append(parts, byteSize(p.done)+" of "+byteSize(p.total))
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
	return clip(line, width)
}

// clock writes a time as 1:05 or 2:03:04.
func clock(d time.Duration) string {
	s := int64(min(d, 1000*time.Hour).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// calibrating is told how far calibration is. The conversion begins behind it, with a time of its own.
func (p *progress) calibrating(done, total int64) {
	p.share("calibrate", done, total)
	if done == total {
		p.clear()
		p.begin()
	}
}

// warn prints a warning above the line.
func (p *progress) warn(text string) {
	p.clear()
	p.console.warn(text)
	p.begin()
}

// clear removes the line.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		close(p.stop)
		p.stop = nil
	}
	if p.drawn > 0 {
		fmt.Fprintf(p.console.stderr, "\r%*s\r", min(p.drawn, p.console.width()-1), "")
	}
	p.drawn, p.total, p.text, p.steps = 0, 0, "", ""
}

// jointProgress adds up the progress of conversions that run together, which tell one at a time.
type jointProgress struct {
	tell  func(done, total int64)
	parts []part
}

// part is how far one of the conversions is.
type part struct{ done, total int64 }

// part adds a conversion, and returns what it reports to.
func (p *jointProgress) part() func(done, total int64) {
	i := len(p.parts)
	p.parts = append(p.parts, part{})
	return func(done, total int64) {
		p.parts[i] = part{done, total}
		var sum part
		for _, q := range p.parts {
			sum.done, sum.total = sum.done+q.done, sum.total+q.total
		}
		p.tell(sum.done, sum.total)
	}
}
