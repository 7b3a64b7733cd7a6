// Metrics of Tallygate as queries name them, with the installation's selector.
{
  local c = self._config,

  // of is a vector with these matchers, and with those of the configuration.
  of(name, matchers=[])::
    local all = (if c.selector == '' then [] else [c.selector]) + matchers;
    if all == [] then name else '%s{%s}' % [name, std.join(',', all)],

  // metric is the same, of a metric of Tallygate.
  metric(name, matchers=[]):: self.of('tallygate_' + name, matchers),
}
