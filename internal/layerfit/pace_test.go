package layerfit

import (
	"testing"
	"time"
)

// The time left is right if both kinds of work go on at their own paces, whichever is the slow one.
func TestPace(t *testing.T) {
	for _, slow := range []time.Duration{time.Second, time.Minute} { // that a search takes, beside runs of a second
		var at time.Duration
		var done, all int64
		p := newPace(func(d, a int64) { done, all = d, a })
		begin := time.Now()
		p.now = func() time.Time { return begin.Add(at) }
		p.begun, p.last = begin, begin
		const groups, samples = 4, 8
		p.running.all, p.fitting.all, p.fitting.each = groups*samples, groups, time.Second
		whole := groups * (samples*time.Second + slow)
		for g := range groups {
			for range samples {
				at += time.Second
				p.addTime(&p.running, 1)
				if g > 0 && time.Duration(all) != whole {
					t.Errorf("search %v, group %d: %v in all, want %v", slow, g, time.Duration(all), whole)
				}
			}
			at += slow
			p.addTime(&p.fitting, 1)
			if time.Duration(done) != at || time.Duration(all) != whole {
				t.Errorf("search %v, after group %d: %v of %v, want %v of %v", slow, g, time.Duration(done), time.Duration(all), at, whole)
			}
		}
	}
}
