package envoylimit

import (
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// values returns a response's fields as HTTP/2 writes them, in order.
func values(header map[string][]string) (all []*corev3.HeaderValue) {
	for _, name := range slices.Sorted(maps.Keys(header)) {
		all = append(all, &corev3.HeaderValue{Key: strings.ToLower(name), Value: header[name][0]})
	}
	return all
}

// options is values, each in place of any that is there.
func options(header map[string][]string) (all []*corev3.HeaderValueOption) {
	for _, v := range values(header) {
		all = append(all, overwrite(v))
	}
	return all
}

func overwrite(v *corev3.HeaderValue) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: v, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}
