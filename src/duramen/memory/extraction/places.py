"""Places that contain others: a person who lives in Rome also lives in Italy."""

from __future__ import annotations

_REGIONS = """
    Afghanistan|Albania|Algeria|Andorra|Angola|Argentina|Armenia|Australia|Austria|Azerbaijan|Bahrain|
    Bangladesh|Belarus|Belgium|Belize|Benin|Bhutan|Bolivia|Bosnia|Botswana|Brazil|Brunei|Bulgaria|Burundi|
    Cambodia|Cameroon|Canada|Chad|Chile|China|Colombia|Congo|Costa Rica|Croatia|Cuba|Cyprus|Czechia|
    Czech Republic|Denmark|Djibouti|Ecuador|Egypt|El Salvador|Eritrea|Estonia|Eswatini|Ethiopia|Fiji|
    Finland|France|Gabon|Gambia|Germany|Ghana|Greece|Guatemala|Guinea|Guyana|Haiti|Honduras|Hungary|
    Iceland|India|Indonesia|Iran|Iraq|Ireland|Israel|Italy|Ivory Coast|Jamaica|Japan|Jordan|Kazakhstan|
    Kenya|Kosovo|Kuwait|Kyrgyzstan|Laos|Latvia|Lebanon|Lesotho|Liberia|Libya|Liechtenstein|Lithuania|
    Luxembourg|Madagascar|Malawi|Malaysia|Maldives|Mali|Malta|Mauritania|Mauritius|Mexico|Moldova|Monaco|
    Mongolia|Montenegro|Morocco|Mozambique|Myanmar|Namibia|Nepal|Netherlands|Holland|New Zealand|Nicaragua|
    Niger|Nigeria|North Korea|North Macedonia|Norway|Oman|Pakistan|Palestine|Panama|Papua New Guinea|
    Paraguay|Peru|Philippines|Poland|Portugal|Qatar|Romania|Russia|Rwanda|Samoa|Saudi Arabia|Senegal|
    Serbia|Singapore|Slovakia|Slovenia|Somalia|South Africa|South Korea|Korea|South Sudan|Spain|Sri Lanka|
    Sudan|Suriname|Sweden|Switzerland|Syria|Taiwan|Tajikistan|Tanzania|Thailand|Togo|Tunisia|Turkey|
    Turkmenistan|Uganda|Ukraine|United Arab Emirates|UAE|United Kingdom|UK|Great Britain|Britain|England|
    Scotland|Wales|Northern Ireland|United States|USA|US|America|Uruguay|Uzbekistan|Venezuela|Vietnam|Yemen|
    Zambia|Zimbabwe|Africa|Asia|Europe|North America|South America|Latin America|Scandinavia|Alabama|Alaska|
    Arizona|Arkansas|California|Colorado|Connecticut|Delaware|Florida|Georgia|Hawaii|Idaho|Illinois|Indiana|
    Iowa|Kansas|Kentucky|Louisiana|Maine|Maryland|Massachusetts|Michigan|Minnesota|Mississippi|Missouri|
    Montana|Nebraska|Nevada|New Hampshire|New Jersey|New Mexico|North Carolina|North Dakota|Ohio|Oklahoma|
    Oregon|Pennsylvania|Rhode Island|South Carolina|South Dakota|Tennessee|Texas|Utah|Vermont|Virginia|
    West Virginia|Wisconsin|Wyoming|Ontario|Quebec|British Columbia|Alberta|Bavaria|Tuscany|Sicily|Catalonia|
    Andalusia|Brittany|Normandy|Provence|Queensland|New South Wales|Victoria|Tasmania
"""
REGIONS = frozenset(" ".join(name.split()).casefold() for name in _REGIONS.split("|"))
"""Countries, their larger regions, and continents."""
_HOLDING = """
    africa|asia|europe|north america|south america|latin america|scandinavia|united states|usa|us|america|canada|
    united kingdom|uk|great britain|britain|germany|italy|spain|france|australia
"""
_LARGE = frozenset(" ".join(name.split()) for name in _HOLDING.split("|"))
"""Regions that contain other regions."""


def may_hold(one: str, other: str) -> bool:
    """Whether one of two places may be inside the other."""
    first, second = one.casefold().removeprefix("the "), other.casefold().removeprefix("the ")
    if (first in REGIONS) != (second in REGIONS):
        return True
    return first in REGIONS and (first in _LARGE) != (second in _LARGE)
