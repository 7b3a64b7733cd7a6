package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"

	"github.com/tallygate/tallygate/event"
)

// price is a model's, in USD for a million tokens: so a token's, in millionths of a USD.
type price struct{ input, output event.Decimal }

// readPrices reads a table with the columns model, input and output.
func readPrices(path string) (map[string]price, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	prices := map[string]price{}
	for i, row := range rows {
		if i == 0 && row[0] == "model" {
			continue
		}
		if len(row) != 3 {
			return nil, fmt.Errorf("read prices: row %d of %s has %d columns, want model, input and output", i+1, path, len(row))
		}
		var p price
		if p.input, err = event.ParseDecimal(row[1]); err == nil {
			p.output, err = event.ParseDecimal(row[2])
		}
		if err != nil || p.input < 0 || p.output < 0 {
			return nil, fmt.Errorf("read prices: row %d of %s has no price: %q", i+1, path, row)
		}
		prices[row[0]] = p
	}
	return prices, nil
}

// usage holds the tokens of a call.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// attrs are those that rules sum: what a call costs at a price, rounded up to a millionth of a USD, and its tokens.
func (u usage) attrs(p price) []event.Attr {
	u.Prompt, u.Completion = bounded(u.Prompt), bounded(u.Completion)
	usd := p.input.TimesInt(u.Prompt).Plus(p.output.TimesInt(u.Completion))
	return []event.Attr{
		{Name: "tokens", Value: event.NumberValue(event.One.TimesInt(u.Prompt + u.Completion))},
		{Name: "usd", Value: event.NumberValue((usd + event.One - 1) / event.One)},
	}
}

// bounded is a number of tokens that a model may have said, or a client.
func bounded(n int64) int64 { return min(max(n, 0), math.MaxInt32) }
