package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/modelfile"
)

// Target is an object that a model becomes.
type Target struct {
	Data   string   // name for the external data; "": that of the model with .data
	Notes  []string // for the user
	client *Client
	name   string
	old    []string // external data of the model that is there
}

// Target asks the store about an object before the work for it begins. data is the name that the user wants for external data, or
// "". The name in the Target is one that the model in the object does not use: that model stays whole until it is replaced.
func (c *Client) Target(ctx context.Context, name, data string) (*Target, error) {
	t := &Target{client: c, name: name, Data: data}
	info, err := c.Stat(ctx, name)
	switch status := statusOf(err); {
	case status == http.StatusNotFound: // a store tells a missing bucket from a missing object when it lists
		if _, err := c.List(ctx, name); statusOf(err) == http.StatusNotFound {
			return nil, fmt.Errorf("%s: there is no such bucket", Plain(name))
		}
		return t, nil
	case status == http.StatusForbidden: // also of objects that do not exist, if the bucket may not be listed
		t.Notes = append(t.Notes, fmt.Sprintf("%v; whether it can be written shows at the end", err))
		return t, nil
	case err != nil:
		return nil, err
	}
	if t.old, err = c.locations(ctx, info); err != nil {
		return nil, err
	}
	if data != "" && t.uses(data) {
		return nil, fmt.Errorf("%s: the model that is there has its data in %s; leave out --external-data-name, or give another one", Plain(name), data)
	}
	for i := 1; data == "" && t.uses(dataName(Base(name), i-1)); i++ {
		t.Data = dataName(Base(name), i)
	}
	return t, nil
}

// statusOf is the status of an answer that is no success, 0 without one.
func statusOf(err error) int {
	var status *statusError
	if errors.As(err, &status) {
		return status.status
	}
	return 0
}

// dataName is the i-th name for the external data of a model.
func dataName(model string, i int) string {
	if i == 0 {
		return model + ".data"
	}
	return model + "." + strconv.Itoa(i) + ".data"
}

// uses reports whether the model that is there has data of this name, or of the names of further files.
func (t *Target) uses(data string) bool {
	return slices.ContainsFunc(t.old, func(old string) bool { return old == data || strings.HasPrefix(old, data+"_") })
}

// locations lists the external data of an object. What is no model has none.
func (c *Client) locations(ctx context.Context, info *Info) ([]string, error) {
	folder, err := os.MkdirTemp("", "onnxquant-fetch-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	o, err := c.openObject(ctx, info, filepath.Join(folder, "model"))
	if err != nil {
		return nil, err
	}
	defer o.Close()
	locations, err := modelfile.Locations(o, info.Size)
	if o.failed != nil {
		return nil, o.failed
	}
	if err != nil {
		return nil, nil
	}
	return locations, nil
}

// Publish writes the files of the model, the model first, to the object and others beside it. The model is written last, so that it
// is not there without its data. Then data of the model that was there are removed, if they have a name that Target gives.
func (t *Target) Publish(ctx context.Context, paths []string) ([]*Info, error) {
	made := make([]*Info, len(paths))
	for i, path := range slices.Backward(paths) {
		to, err := t.name, error(nil)
		if i > 0 {
			to, err = beside(t.name, filepath.Base(path))
		}
		if err != nil {
			return nil, err
		}
		if made[i], err = t.client.Put(ctx, to, path); err != nil {
			return nil, err
		}
	}
	ours := regexp.MustCompile(`^` + regexp.QuoteMeta(Base(t.name)) + `(\.[0-9]+)?\.data(_[0-9]+)?$`)
	for _, old := range t.old {
		isNew := slices.ContainsFunc(paths[1:], func(path string) bool { return filepath.Base(path) == old })
		if isNew || !ours.MatchString(old) {
			continue
		}
		name, err := beside(t.name, old)
		if err == nil {
			err = t.client.Delete(ctx, name)
		}
		if err != nil {
			t.Notes = append(t.Notes, fmt.Sprintf("the data of the model that was replaced stay: %v", err))
		}
	}
	return made, nil
}
